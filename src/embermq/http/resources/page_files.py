"""The files of the page: `/` and `/page/...`, for everybody, from the folder `page/static` of this package.

Owns: which files there are, their types, and the headers that keep a browser from running or loading anything else.
"""

from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, final

from aiohttp import web

from embermq.http.refusal import SENTENCES, HttpRefusal

INDEX: Final = "index.html"
CONTENT_TYPES: Final = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
}
"""By the end of a file's name; a file with another is not served."""
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # a browser keeps a file, and asks by its ETag whether it is still the same
}


@final
class PageFile:
    """One file."""

    __slots__ = ("content_type", "data", "etag")

    def __init__(self, content_type: str, data: bytes) -> None:
        self.content_type: Final = content_type
        self.data: Final = data
        self.etag: Final = f'"{sha256(data).hexdigest()[:32]}"'


@final
class PageFiles:
    """All files, read when one is first asked for. Only names that were found in the folder are ever looked up."""

    __slots__ = ("_files", "_folder")

    def __init__(self, folder: Traversable | None = None) -> None:
        self._folder: Final = folder if folder is not None else files("embermq.http") / "page" / "static"
        self._files: dict[str, PageFile] | None = None

    async def get(self, request: web.Request) -> web.StreamResponse:
        """The file that a request's path names, or `/` for the page itself."""
        if self._files is None:
            self._files = dict(_read(self._folder, ""))
        file = self._files.get(request.match_info.get("name", INDEX))
        if file is None:
            raise HttpRefusal(404, SENTENCES[404])
        headers = {**HEADERS, "ETag": file.etag}
        if file.etag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        charset = "utf-8" if not file.content_type.startswith("image/") else None
        return web.Response(body=file.data, content_type=file.content_type, charset=charset, headers=headers)


def _read(folder: Traversable, prefix: str) -> list[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _read(entry, f"{prefix}{entry.name}/")
        elif (content_type := CONTENT_TYPES.get(entry.name.rpartition(".")[2])) is not None:
            found.append((prefix + entry.name, PageFile(content_type, entry.read_bytes())))
    return found
