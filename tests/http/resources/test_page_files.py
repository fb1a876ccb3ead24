"""The files of the page: public, cached by ETag, with a policy that allows nothing foreign."""

from pathlib import Path

from support.http_place import Place, run


def test_the_page_has_a_strict_policy_and_is_not_sent_twice(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        async with place.session.get("http://localhost/") as response:
            assert response.status == 200
            assert response.content_type == "text/html" and response.charset == "utf-8"
            assert (await response.text()).lower().startswith("<!doctype html>")
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            etag = response.headers["ETag"]
        async with place.session.get("http://localhost/page/index.html") as same:
            assert same.headers["ETag"] == etag
        async with place.session.get("http://localhost/", headers={"If-None-Match": etag}) as again:
            assert (again.status, await again.read()) == (304, b"")
            assert again.headers["Content-Security-Policy"] == policy

    run(tmp_path, test)


def test_only_files_of_the_folder_are_served(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for path in ("/page/none.js", "/page/%2e%2e/page_files.py", "/page/..%2f..%2fservice.py", "/page/", "/page//"):
            assert (await place.get(path)).status == 404

    run(tmp_path, test)
