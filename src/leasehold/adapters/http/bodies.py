"""Request bodies as plain data from JSON, YAML or protobuf; anything unsafe is refused with 400.

Called by the writing handlers. The result is what JSON can express: mappings with text keys, finite
numbers of at most 64 bits, text without lone surrogates, nested at most `DEPTH_MAX` deep.
"""

import msgspec
import yaml

from leasehold.adapters.http.messages import JSON, Request, bad_request
from leasehold.adapters.http.protobuf import BadProtobuf, decode_object
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire

DEPTH_MAX = 64
YAML_TYPES = ("application/yaml", "application/apply-patch+yaml")
PROTOBUF = "application/vnd.kubernetes.protobuf"
_WHOLE_BITS_MAX = 63

_BASE: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


async def read_object(request: Request) -> Wire:
    """Read the body as one object, in any supported format."""
    body = await request.body()
    media = request.media_type
    if media in (JSON, ""):
        return as_mapping(json_value(body))
    if media in YAML_TYPES:
        return as_mapping(yaml_value(body))
    if media == PROTOBUF:
        try:
            return decode_object(body)
        except (BadProtobuf, UnicodeDecodeError) as error:
            raise bad_request(
                f"the body is not a protobuf object that this server supports: {error}"
            ) from None
    raise unsupported(media, JSON, "application/yaml", PROTOBUF)


def unsupported(media: str, *legal: str) -> RequestRefused:
    return RequestRefused(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format ({media[:80] or 'none'}); "
        f"accepted media types include: {', '.join(legal)}",
    )


def json_value(body: bytes) -> object:
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    check_plain(value)
    return value


def yaml_value(body: bytes) -> object:
    """Parse a body with one document, in JSON or YAML. JSON is tried first, because kubectl sends
    it."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = _yaml(body)
    check_plain(value)
    return value


def as_mapping(value: object) -> Wire:
    if not isinstance(value, dict):
        raise bad_request("the body is not an object; send an object with apiVersion and kind")
    return value


def check_plain(value: object) -> None:
    """Raise `RequestRefused` for a value that the store could not return as it was: one with a
    number of more than 64 bits, or nested too deeply."""
    level: list[object] = [value]
    for _ in range(DEPTH_MAX + 1):
        deeper: list[object] = []
        for each in level:
            if isinstance(each, dict):
                deeper.extend(each)
                deeper.extend(each.values())
            elif isinstance(each, list):
                deeper.extend(each)
            elif isinstance(each, int) and each.bit_length() > _WHOLE_BITS_MAX:
                raise bad_request("the body has a number with more than 64 bits")
        level = deeper
        if not level:
            return
    raise bad_request(f"the body is nested deeper than {DEPTH_MAX}")


def _yaml(body: bytes) -> object:
    try:
        text = body.decode("utf-8-sig")
        depth = 0
        for event in yaml.parse(text, Loader=_BASE):
            if isinstance(event, yaml.AliasEvent):
                raise bad_request("the body has YAML aliases; repeat the values instead")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > DEPTH_MAX:
                raise bad_request(f"the body is nested deeper than {DEPTH_MAX}")
        loader = _BASE(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
        return None if node is None else _plain(node)
    except yaml.YAMLError as error:
        said = getattr(error, "problem", None) or "not YAML"
        raise bad_request(f"the body is not a single YAML document: {said}") from None
    except (UnicodeDecodeError, UnicodeEncodeError):
        raise bad_request("the body is not UTF-8") from None


def _plain(node: yaml.Node) -> object:
    """Convert a YAML node to JSON types, as the Go library sigs.k8s.io/yaml does: a date stays
    text."""
    if isinstance(node, yaml.MappingNode | yaml.SequenceNode) and node.tag not in _COLLECTIONS:
        raise bad_request(f"the YAML tag {node.tag[:80]!r} is not supported; leave it out")
    if isinstance(node, yaml.MappingNode):
        found: Wire = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise bad_request("the body has a YAML key that is not a string")
            found[key.value] = _plain(value)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each) for each in node.value]
    return _scalar(node)


def _scalar(node: yaml.Node) -> object:
    text: str = node.value
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return text.lower() in ("true", "yes", "on", "y")
        case "int":
            return _whole(text)
        case "float":
            return _decimal(text)
        case "str" | "timestamp" | "value" | "merge":
            return text
    raise bad_request(f"the YAML tag {node.tag[:80]!r} is not supported; leave it out")


def _whole(text: str) -> object:
    plain = text.replace("_", "")
    if ":" in plain or len(plain) > 40:  # base 60, which nobody means
        return text
    try:
        return int(plain, 8 if plain.lstrip("+-").startswith("0") and plain[-1:].isdigit() else 0)
    except ValueError:
        return text


def _decimal(text: str) -> object:
    try:
        value = float(text.replace("_", ""))
    except ValueError:
        return text
    if value != value or abs(value) == float("inf"):
        raise bad_request(f"{text[:80]!r} is not a number that JSON supports")
    return value
