// What an errno means, in the words of glibc: people know them, and Python says them too. musl,
// which a shim is linked with, says some of them differently.

#ifndef LEASEHOLD_REASONS_H
#define LEASEHOLD_REASONS_H

// Of jobs: not errnos, but refused before the kernel is asked, as Python's `os.execve` does.
enum { EMPTY_NAME = -1, ILLEGAL_VARIABLE = -2 };

const char *reason_of(int number);

#endif
