"""Every link between the documents leads to a file, and to a heading that is there."""

from __future__ import annotations

import re

from tests.docs.snippets import REPOSITORY

DOCUMENTS = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("examples/*.md")]

_LINK = re.compile(r"\]\((?P<path>[^)#:\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors that a page of this text has, by GitHub's rule."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def test_links_lead_somewhere() -> None:
    """Links to the web are left alone."""
    dead = []
    for document in DOCUMENTS:
        for link in _LINK.finditer(document.read_text("utf-8")):
            target = (document.parent / link["path"]).resolve() if link["path"] else document
            if not target.exists() or (link["anchor"] and link["anchor"] not in anchors(target.read_text("utf-8"))):
                dead.append(f"{document.relative_to(REPOSITORY)}: {link[0][2:-1]}")

    assert len(DOCUMENTS) > 8
    assert dead == []
