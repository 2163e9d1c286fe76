"""Why the facade answers otherwise than a real kube-apiserver, where it does: one line each.

Cases name these reasons; the documents may quote the table.
"""

REASONS = {
    "mistake": "The real server answers 500 to this mistake of a client; ours answers 4xx.",
    "generation": "We count a generation of every kind, and only changes of the spec: neither "
    "a deletion moves it, nor is a binding, which changes the spec, left out.",
    "place": "Our cause names the label or annotation, the real one only the mapping it is in.",
    "another kind": "An object of another kind is a 400 for every kind, as the real server answers "
    "for its own kinds; for custom resources it answers 422.",
    "made-up name": "Of a name made from generateName we refuse the name, not its beginning too.",
    "twice": "We name the first mistake where the real server names what follows from it too.",
    "required": "A version that is missing is FieldValueRequired, and of the kind, for us.",
    "conflict": "Details of every Conflict name the resource, where the real one has the kind.",
    "last word": "A write that makes an object go answers with the version at which it went.",
    "garbage": "Nothing here owns anything, so nothing waits for a collector: every propagation "
    "policy deletes at once.",
    "pod gone": "The last deletion of a pod is answered with the pod as it was before.",
    "remaining": "remainingItemCount, which is optional, is not counted.",
    "defaults": "Pods are stored as leasehold writes them; defaults of fields it does not use are "
    "not filled in.",
    "deleted event": "What is deleted at once has its deletionTimestamp in the DELETED event.",
    "past selector": "A watch with a selector that starts in the past tells an object as it is, "
    "and says MODIFIED where it cannot know that the object did not match before.",
    "typed 404": "Every refusal is a Status; for some paths the real server answers plain text.",
    "unasked": "Unknown fields of Runs and Budgets are refused also when a client does not ask for "
    "that, where the real server drops them with a warning: a limit on money must not be lost.",
    "verbs": "A verb that a resource does not have is a 405 before the body is looked at.",
    "405 details": "A 405 lists the verbs in its message and has no details.",
    "columns": "Nodes have a column with their GPUs.",
    "type words": "Rules of Runs and Budgets are checked by leasehold, which knows two reasons, "
    "FieldValueInvalid and FieldValueRequired, and says the rest in words.",
    "warning": "A body that is refused is not warned about too.",
    "content type": "A JSON document is sent as JSON.",
    "unset": "A lease that is open has no status, and status.closed=false selects it; a definition "
    "cannot say what a field means that is not there. Either selects by status.closed!=true.",
    "selectable": "A CustomResourceDefinition may declare eight selectable fields; we have eleven, "
    "one of which is a list, of which it may declare none: there, write spec.slice.node.",
    "strategic": "Runs and Budgets take strategic merge patches, which kubectl sends by default; "
    "of custom resources the real server answers 415.",
    "forms": "Answers come as JSON only; clients that prefer protobuf or YAML accept JSON too.",
    "future": "A version we never gave out is another server's: 410 at once, not 504 after 3 s; "
    "either makes a client list again.",
    "first apply": "Who created an object is noted from the first apply on, and by no name.",
    "pod spec": "Only the control plane writes pods, and it never edits one: there is no rule.",
    "impersonation": "Nobody acts as another here: make a token of that user.",
}
