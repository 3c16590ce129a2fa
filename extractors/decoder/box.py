"""Takes from the decoding process what no decoder needs, before it reads the first byte of a file.

    no new privileges   a program that is run gains nothing by being setuid
    limits              few open files; seconds of processors, with each request
    Landlock            nothing is written, made or removed, and nothing read but files of the system and of
                        Python: a media file comes as a descriptor; no TCP; no signal to others
    seccomp             no sockets, no programs, no other processes, and no look into one

Who takes over a native decoder by a hostile file can then neither speak to Redis nor start anything, nor
read another upload. Each layer is the kernel's: what it lacks is named, and the rest holds.
Linux's own documents have the numbers: landlock(7), seccomp(2), each processor's table of system calls.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

OPEN_FILES = 256
SPARE_SECONDS = 10  #: of processors, that reading a file may take beside its time

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT, LANDLOCK_VERSION = 444, 445, 446, 1
#: Rights of files by the version of Landlock that knows them first: to run, write, read, list, remove and
#: make any kind of file; to move one between folders; to cut one; to control a device.
FILE_RIGHTS: Mapping[int, int] = {1: 0b1_1111_1111_1111, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
READING, BENEATH = 0b1100, 1  #: rights that are granted, of all that lies beneath a folder
#: What the system's libraries read; where Python and its packages lie comes to it.
READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/proc/self", "/dev/null", "/dev/urandom")
TCP_RIGHTS, TCP_SINCE = 0b11, 4
SCOPES, SCOPES_SINCE = 0b11, 6  #: sockets without a file, and signals, of processes outside

LOAD_WORD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
CLONE_THREAD = 0x10000
OTHER_CALLS = 0x40000000  #: from here on x86-64 has a second list of calls
#: By processor: its name for seccomp, clone, and the calls that are refused.
PROCESSORS: Mapping[str, tuple[int, int, Sequence[int]]] = {
    "x86_64": (0xC000003E, 56, (
        41, 42, 43, 49, 50, 53, 288,  # socket, connect, accept, bind, listen, socketpair, accept4
        57, 58, 59, 322, 101, 310, 311,  # fork, vfork, execve, execveat, ptrace, process_vm_readv and _writev
        155, 161, 165, 166, 272, 308,  # pivot_root, chroot, mount, umount2, unshare, setns
        175, 246, 248, 249, 250, 298, 304,  # init_module … kexec, keys, perf_event_open, open_by_handle_at
        313, 321, 323, 424, 425, 434, 438,  # finit_module, bpf, userfaultfd, pidfd_*, io_uring_setup
    )),
    "aarch64": (0xC00000B7, 220, (
        198, 203, 202, 200, 201, 199, 242, 221, 281, 117, 270, 271, 41, 51, 40, 39, 97, 268,
        105, 104, 217, 218, 219, 241, 265, 273, 280, 282, 424, 425, 434, 438,
    )),
}  # fmt: skip
CLONE3 = 435  #: what it is to do lies in memory, where no filter can look; C libraries then use clone


def enter_box() -> list[str]:
    """Gives up for good what no decoder needs; returns the names of layers that this kernel lacks."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    layers: Mapping[str, Callable[[], None]] = {
        "no_new_privs": _refuse_privileges, "landlock": _enter_landlock, "seccomp": _enter_seccomp
    }  # fmt: skip
    lacking = []
    for name, enter in layers.items():
        try:
            enter()
        except (OSError, AttributeError):  # AttributeError: no C library with such calls
            lacking.append(name)
    return lacking


def limit_processor_seconds(seconds: float) -> None:
    """Ends this process once it has used the processors for so long from now on, all of them at once."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    most = round(used + seconds * (os.cpu_count() or 1)) + SPARE_SECONDS
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    with suppress(ValueError):  # an operator's limit is lower
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _refuse_privileges() -> None:
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _enter_landlock() -> None:
    version = _call("syscall", LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    files = sum(rights for since, rights in FILE_RIGHTS.items() if version >= since)
    attributes = struct.pack("<Q", files)
    if version >= TCP_SINCE:
        attributes += struct.pack("<Q", TCP_RIGHTS)
    if version >= SCOPES_SINCE:
        attributes += struct.pack("<Q", SCOPES)
    ruleset = _call("syscall", LANDLOCK_CREATE, attributes, len(attributes), 0)
    try:
        for place in {*READABLE, sys.prefix, sys.base_prefix, *_package_folders()}:
            _allow_reading(ruleset, place)
        _call("syscall", LANDLOCK_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _package_folders() -> list[str]:
    """Lists the folders of packages that are in use, some of whose modules are loaded with the first file."""
    packages = [module for name, module in sys.modules.items() if "." not in name]
    return [folder for package in packages for folder in getattr(package, "__path__", ())]


def _allow_reading(ruleset: int, place: str) -> None:
    try:
        folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it is not there
        return
    rights = READING if os.path.isdir(place) else READING & ~0b1000
    try:
        _call("syscall", LANDLOCK_ADD, ruleset, BENEATH, struct.pack("=Qi", rights, folder), 0)
    finally:
        os.close(folder)


def _enter_seccomp() -> None:
    if platform.machine() not in PROCESSORS:
        raise OSError(errno.ENOSYS, "its list of system calls is not known here")
    program = _make_filter(*PROCESSORS[platform.machine()])
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _call("prctl", PR_SET_SECCOMP, MODE_FILTER, header, 0, 0)


def _make_filter(architecture: int, clone: int, refused: Sequence[int]) -> bytes:
    """Makes the program that judges each system call, by its number: eight bytes an instruction.

    clone: the call that starts threads, and would start processes. Calls of another architecture end the
    process.
    """
    refuse = REFUSE | errno.EPERM
    steps = [(LOAD_WORD, 0, 0, ARCHITECTURE_AT), (IF_EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL)]
    steps += [(LOAD_WORD, 0, 0, NUMBER_AT), (IF_AT_LEAST, 0, 1, OTHER_CALLS), (RETURN, 0, 0, refuse)]
    steps += [(IF_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, REFUSE | errno.ENOSYS)]
    for number in refused:
        steps += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, refuse)]
    steps += [(IF_EQUAL, 0, 3, clone), (LOAD_WORD, 0, 0, FIRST_ARGUMENT_AT)]
    steps += [(IF_ANY_BIT, 1, 0, CLONE_THREAD), (RETURN, 0, 0, refuse), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("@HBBI", *step) for step in steps)


def _call(name: str, *arguments: int | bytes | None) -> int:
    """Calls the C library. Raises OSError, and AttributeError where there is no such function."""
    library = ctypes.CDLL(None, use_errno=True)
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(getattr(library, name)(*values))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return result
