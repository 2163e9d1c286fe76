"""Labels and annotations of an object or a pod template, by the rules of Kubernetes.

Called by `manifests` and `template`. Checks sizes and characters only; no label has a meaning here.
"""

from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.problems import Problem, joined, shown

ANNOTATION_BYTES_MAX = 256 * 1024


def check_labels(metadata: Fields) -> None:
    """Check the labels and annotations under `metadata`."""
    labels = metadata.inside("labels")
    for key in labels.members:
        if not isinstance(key, str) or not readers.is_label_key(key):
            _bad_key(labels, key)
        elif labels.raw(key) is None:
            labels.note(key, 'use a string; "" is the empty string')
        else:
            labels.take(key, readers.label_value, "")
    annotations = metadata.inside("annotations")
    size = 0
    for key, value in annotations.members.items():
        if not isinstance(key, str) or not readers.is_label_key(key):
            _bad_key(annotations, key)
        elif not isinstance(value, str):
            annotations.note(key, "use a string, in quotes")
        else:
            size += len(key) + len(value.encode("utf-8", "replace"))
    if size > ANNOTATION_BYTES_MAX:
        metadata.note("annotations", f"use at most {ANNOTATION_BYTES_MAX} bytes of annotations")


def _bad_key(fields: Fields, key: object) -> None:
    remedy = "use a key of at most 63 letters, digits, '-', '_' and '.', or prefix/key"
    fields.problems.append(Problem(path=joined(fields.path, key), value=shown(key), remedy=remedy))
