#include "reasons.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct {
    int number;
    const char *reason;
} differing[] = {
    {EMPTY_NAME, "execve: argv first element cannot be empty"},
    {ILLEGAL_VARIABLE, "illegal environment variable name"},
    {EIO, "Input/output error"},
    {ENOMEM, "Cannot allocate memory"},
    {EBUSY, "Device or resource busy"},
    {EXDEV, "Invalid cross-device link"},
    {EMFILE, "Too many open files"},
    {ESPIPE, "Illegal seek"},
    {ERANGE, "Numerical result out of range"},
    {ENAMETOOLONG, "File name too long"},
    {ELOOP, "Too many levels of symbolic links"},
    {EOVERFLOW, "Value too large for defined data type"},
    {ELIBACC, "Can not access a needed shared library"},
    {ELIBBAD, "Accessing a corrupted shared library"},
    {EOPNOTSUPP, "Operation not supported"},
    {ETIMEDOUT, "Connection timed out"},
    {EUCLEAN, "Structure needs cleaning"},
    {EREMOTEIO, "Remote I/O error"},
    {EDQUOT, "Disk quota exceeded"},
};

const char *reason_of(int number)
{
    for (size_t index = 0; index < sizeof differing / sizeof differing[0]; index++) {
        if (differing[index].number == number) {
            return differing[index].reason;
        }
    }
    return strerror(number);
}
