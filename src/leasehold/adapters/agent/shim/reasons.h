// Messages for errno in glibc's wording, which is well known and also Python's. musl, which the
// shim is linked with, words some of them differently.

#ifndef LEASEHOLD_REASONS_H
#define LEASEHOLD_REASONS_H

// Errors of jobs that are not errnos: refused before the system call, like Python's `os.execve`.
enum { EMPTY_NAME = -1, ILLEGAL_VARIABLE = -2 };

const char *reason_of(int number);

#endif
