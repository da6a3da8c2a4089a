"""Whether files of a CANN may be loaded: a user who can change them runs code as this user. Opens nothing."""

from __future__ import annotations

import grp
import os
import pwd
import stat

SERVICE_ACCOUNT = "HwHiAiUser"  # the user that CANN's installers make and give their files to


def objection(path: str, home: str) -> str:
    """Who else can change what is loaded from path, a file or folder of the toolkit at home; "": no one.

    Links are resolved. The path, its folder, and what is inside the home must belong to a trusted user and be
    writable for no one else. A folder above the home may belong to any user; if all users can write to it (/tmp), it must
    be sticky, so that no one can put another folder in the place of this one."""
    start, home = os.path.realpath(path), os.path.realpath(home)
    place = start
    while True:
        inside = place in (start, os.path.dirname(start)) or (place + "/").startswith(home.rstrip("/") + "/")
        status = os.stat(place)
        reason = _reason(status, inside)
        if reason:
            return (f"{place} (mode {stat.S_IMODE(status.st_mode):04o}, owner {_user_name(status.st_uid)}) {reason}, who "
                    "could so run code in this process. Change that (chown, chmod go-w)")
        if place == os.path.dirname(place):
            return ""
        place = os.path.dirname(place)


def _reason(status: os.stat_result, inside: bool) -> str:
    """Why a file or folder is not trusted; "" if it is."""
    mode = status.st_mode
    if mode & stat.S_IWOTH and (inside or not mode & stat.S_ISVTX):
        return "can be written by every user"
    if inside and mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"can be written by the group {_group_name(status.st_gid)}"
    if inside and status.st_uid not in _trusted_owners():
        return "belongs to another user"
    return ""


def _trusted_owners() -> set[int]:
    """root, this user, CANN's own account, and who owns this file: they can change the code that runs here anyway."""
    owners = {0, os.geteuid(), os.stat(__file__).st_uid}
    try:
        owners.add(pwd.getpwnam(SERVICE_ACCOUNT).pw_uid)
    except KeyError:  # there is no such account
        pass
    return owners


def _is_own_group(gid: int) -> bool:
    """Whether a group is root's, or the private one that many systems make for each user."""
    if gid == 0:
        return True
    try:
        user = pwd.getpwuid(os.geteuid())
        return user.pw_gid == gid and set(grp.getgrgid(gid).gr_mem) <= {user.pw_name}
    except KeyError:  # a user or group without a name
        return False


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
