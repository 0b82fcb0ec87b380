"""Which GPUs the processes of a control group (v2) may open: a BPF program that the kernel asks about each device.

The program is a few instructions, which are written here as numbers: no library or compiler is needed. It denies
the GPUs that a job was not given, under whatever name a device file has, and allows everything else.

Linux only, for root or CAP_BPF with CAP_NET_ADMIN. Launchers use it: it imports little.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

# The number of the system call bpf(2), which depends on the processor; on others GPUs are not denied.
_CALLS = {"x86_64": 321, "aarch64": 280, "arm64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
# From linux/bpf.h.
_PROG_LOAD, _PROG_ATTACH = 5, 8
_TYPE_CGROUP_DEVICE, _ATTACH_CGROUP_DEVICE = 15, 6
_LOAD_WORD, _SET, _EXIT, _JUMP_IF_EQUAL, _JUMP_IF_NOT_EQUAL = 0x61, 0xB7, 0x95, 0x15, 0x55
_RESULT, _CONTEXT, _MAJOR, _MINOR = 0, 1, 2, 3  # registers
_MAJOR_AT, _MINOR_AT = 4, 8  # in what the kernel tells about a device
_LICENSE = b"Apache-2.0"
MOST_DENIED = 8_000  # devices; jumps reach no farther


class DeviceNumber(NamedTuple):
    """What the kernel knows a device by, whatever its files are called."""

    major: int
    minor: int

    @classmethod
    def of(cls, path: Path) -> "DeviceNumber":
        """Return the number behind a device file."""
        number = path.stat().st_rdev
        return cls(os.major(number), os.minor(number))


def deny(group: Path, devices: Collection[DeviceNumber]) -> None:
    """Let no process of a control group open some devices; `OSError` if this process or system cannot do that."""
    code = _program(sorted(set(devices)))
    instructions, license_text = (
        ctypes.create_string_buffer(code, len(code)),
        ctypes.create_string_buffer(_LICENSE),
    )
    kind_and_size = struct.pack("=II", _TYPE_CGROUP_DEVICE, len(code) // 8)
    addresses = struct.pack("=QQ", ctypes.addressof(instructions), ctypes.addressof(license_text))
    # No log of the verifier, version, flags, name or interface; then the kind of attachment that is expected.
    program = _bpf(_PROG_LOAD, kind_and_size + addresses + bytes(44) + struct.pack("=I", _ATTACH_CGROUP_DEVICE))
    try:
        folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _bpf(_PROG_ATTACH, struct.pack("=IIII", folder, program, _ATTACH_CGROUP_DEVICE, 0))
        finally:
            os.close(folder)
    finally:
        os.close(program)  # the group holds it


def _program(denied: list[DeviceNumber]) -> bytes:
    """Return instructions that answer 0 for devices that are denied, and 1 for others."""
    if len(denied) > MOST_DENIED:
        raise OSError(f"{len(denied)} devices are too many to deny")
    code = [
        _instruction(_LOAD_WORD, _MAJOR, _CONTEXT, _MAJOR_AT),
        _instruction(_LOAD_WORD, _MINOR, _CONTEXT, _MINOR_AT),
    ]
    for number, device in enumerate(denied):
        code.append(_instruction(_JUMP_IF_NOT_EQUAL, _MAJOR, jump=1, value=device.major))
        # Over the two instructions of each device after this one, and those that allow.
        to_denial = 2 * (len(denied) - number - 1) + 2
        code.append(_instruction(_JUMP_IF_EQUAL, _MINOR, jump=to_denial, value=device.minor))
    for answer in (1, 0):
        code += [_instruction(_SET, _RESULT, value=answer), _instruction(_EXIT, _RESULT)]
    return b"".join(code)


def _instruction(operation: int, target: int, source: int = 0, jump: int = 0, value: int = 0) -> bytes:
    registers = source << 4 | target if sys.byteorder == "little" else target << 4 | source
    return struct.pack("=BBhi", operation, registers, jump, value)


def _bpf(command: int, attributes: bytes) -> int:
    call = _CALLS.get(platform.machine())
    if call is None or not sys.platform.startswith("linux"):
        raise OSError(f"no filter of devices on {platform.machine()}")
    given = ctypes.create_string_buffer(attributes, len(attributes))
    answer: int = ctypes.CDLL(None, use_errno=True).syscall(call, command, given, len(attributes))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"bpf: {os.strerror(number)}")
    return answer
