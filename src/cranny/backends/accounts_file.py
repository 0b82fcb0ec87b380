"""Reading who runs as whom: `same-name`, or a file with the account of each user."""

import os
from pathlib import Path

from pydantic import Field

from cranny.model.errors import InputError
from cranny.model.yaml_file import MAX_NAME, Document, Fields, Name, checked

SAME_NAME = "same-name"
WRITABLE = 0o022  # by others than the owner
_MUST_BE = {"users": f"a mapping from users to accounts of this system, names of 1 to {MAX_NAME} characters"}


class AccountFields(Fields):
    """The whole file."""

    users: dict[Name, Name] = Field(default_factory=dict)


def read_accounts(text: str) -> dict[str, str] | None:
    """Return the account of each user; None if accounts are called like users.

    Only root and the owner may be able to change the file, or to replace it: it says who may run what.
    """
    if text == SAME_NAME:
        return None
    path = Path(text).absolute()
    document = Document(path, text_fields=frozenset(), text_below=frozenset({"users"}))
    for each in (path, path.parent):
        info = each.stat()
        if info.st_uid not in (0, os.getuid()) or info.st_mode & WRITABLE:
            raise InputError(
                f"--accounts: {each}: others could change it (owner {info.st_uid}, mode "
                f"{info.st_mode & 0o7777:o}); it must belong to root, and only root may write it"
            )
    return checked(document, AccountFields, {}, _MUST_BE).users
