"""Why some answers of the facade differ from those of a real kube-apiserver.

Cases refer to these reasons by key.
"""

REASONS = {
    "mistake": "The real server answers 500 to this mistake of a client; ours answers 4xx.",
    "generation": "Every kind of ours has a generation, which counts only changes of the spec: a "
    "deletion does not change it; a binding, which changes the spec, does.",
    "place": "Our cause names the label or annotation, the real one only the map that contains it.",
    "another kind": "An object of another kind is a 400 for every kind, as the real server answers "
    "for its own kinds; for custom resources it answers 422.",
    "made-up name": "For a bad name made from generateName we report only the name, not also its "
    "prefix.",
    "twice": "We report the first mistake; the real server also reports those that follow from it.",
    "required": "We report a missing version as FieldValueRequired, and for the kind.",
    "conflict": "Details of every Conflict name the resource; the real server names the kind.",
    "last word": "A write that removes an object is answered with the version of its removal.",
    "garbage": "Objects have no owners here and no collector: every propagation policy deletes at "
    "once.",
    "pod gone": "The last deletion of a pod is answered with the pod before the deletion.",
    "remaining": "remainingItemCount, which is optional, is not counted.",
    "defaults": "Pods are stored as leasehold writes them; defaults of fields it does not use are "
    "not filled in.",
    "deleted event": "The DELETED event of an object deleted at once has a deletionTimestamp.",
    "past selector": "A watch with a selector that starts in the past sends the present object, "
    "and sends MODIFIED if it cannot know that the object did not match before.",
    "typed 404": "Every refusal is a Status; for some paths the real server answers plain text.",
    "unasked": "Unknown fields of Runs and Budgets are refused even if the client does not ask for "
    "that; the real server drops them with a warning. A limit on money must not be lost.",
    "verbs": "A verb that a resource does not have is a 405, whatever the body is.",
    "405 details": "A 405 lists the verbs in its message and has no details.",
    "columns": "Nodes have a column with their GPUs.",
    "type words": "leasehold checks the rules of Runs and Budgets. It has two reasons, "
    "FieldValueInvalid and FieldValueRequired; the message says the rest.",
    "warning": "A refused body gets no warnings in addition.",
    "content type": "A JSON document is sent as JSON.",
    "unset": "An open lease has no status, and status.closed=false selects it; a definition cannot "
    "give a missing field a value. Both servers select by status.closed!=true.",
    "selectable": "A CustomResourceDefinition may declare eight selectable fields, none of them a "
    "list; we have eleven, one of them a list: on a real server select by spec.slice.node.",
    "strategic": "Runs and Budgets accept strategic merge patches, which kubectl sends by default; "
    "for custom resources the real server answers 415.",
    "forms": "Answers are JSON only; clients that prefer protobuf or YAML accept JSON too.",
    "future": "A version that we never gave out is another server's: 410 at once, not 504 after "
    "3 s; a client lists again after either.",
    "first apply": "The creator of an object is recorded from the first apply on, without a name.",
    "pod spec": "Only the control plane writes pods, and it never edits one, so there is no rule.",
    "impersonation": "There is no impersonation: create a token for that user.",
}
