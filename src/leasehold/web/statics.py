"""Static files: styles, scripts and fonts, each with a hash in its URL.

The hash is computed from the file's content. So a browser may cache a file for ever, and never uses
an old one. The files are read once, at start.
"""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from leasehold.web.dependencies import NotShown

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


class Statics:
    def __init__(self, folder: Path) -> None:
        self._files: dict[str, tuple[bytes, str]] = {}
        self._hashes: dict[str, str] = {}
        for path in sorted(folder.rglob("*")):
            kind = _TYPES.get(path.suffix)
            if path.is_file() and kind is not None:
                name, body = path.relative_to(folder).as_posix(), path.read_bytes()
                self._files[name] = (body, kind)
                self._hashes[name] = hashlib.sha256(body).hexdigest()[:12]

    def address(self, name: str) -> str:
        return f"/ui/static/{name}?{self._hashes[name]}"

    def response(self, request: Request, name: str) -> Response:
        found = self._files.get(name)
        if found is None or request.method not in ("GET", "HEAD"):
            raise NotShown(404, "there is no such file")
        is_hashed = request.url.query == self._hashes[name]
        keep = "public, max-age=31536000, immutable" if is_hashed else "no-cache"
        return Response(found[0], headers={"cache-control": keep, "content-type": found[1]})
