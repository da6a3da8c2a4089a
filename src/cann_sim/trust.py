"""Whether libraries may be loaded from a folder: whoever can change it runs code as this user."""

from __future__ import annotations

import grp
import os
import pwd
import stat


def refuse_untrusted(folder: str, home: str) -> None:
    """Raises PermissionError where somebody else can put libraries into a folder of a home.

    Links are resolved. What is inside the home must belong to root, this user or the owner of this package, and be
    writable for nobody else; a folder above it that everybody can write to (/tmp) must be sticky."""
    if os.environ.get("CANN_SIM_ALLOW_WRITABLE") == "1":
        return
    place, home = os.path.realpath(folder), os.path.realpath(home)
    while True:
        status = os.stat(place)
        reason = _reason(status, (place + "/").startswith(home.rstrip("/") + "/"))
        if reason:
            raise PermissionError(
                f"[cann_sim] {folder} is not used, because {place} (mode {stat.S_IMODE(status.st_mode):04o}, owner "
                f"{status.st_uid}) {reason}, who could so run code in this process. Change that (chown, chmod go-w), "
                "or set CANN_SIM_ALLOW_WRITABLE=1 if you trust them"
            )
        if place == os.path.dirname(place):
            return
        place = os.path.dirname(place)


def _reason(status: os.stat_result, inside: bool) -> str:
    if status.st_mode & stat.S_IWOTH and (inside or not status.st_mode & stat.S_ISVTX):
        return "can be written by every user"
    if inside and status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"can be written by the group {status.st_gid}"
    if inside and status.st_uid not in (0, os.geteuid(), os.stat(__file__).st_uid):
        return "belongs to another user"
    return ""


def _is_own_group(gid: int) -> bool:
    """Whether a group is root's, or the private one that many systems make for each user."""
    if gid == 0:
        return True
    try:
        user = pwd.getpwuid(os.geteuid())
        return user.pw_gid == gid and set(grp.getgrgid(gid).gr_mem) <= {user.pw_name}
    except KeyError:  # a user or group without a name
        return False
