// Text of a bounded size, and JSON strings in it as Python's `json.dumps` writes them.
//
// Every record and message of a shim is made here. What does not fit is left out: who writes what
// others chose (a path, a name) cuts it first, by `text_fitting`.

#ifndef LEASEHOLD_TEXT_H
#define LEASEHOLD_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_BYTES = 4096 };

struct text {
    size_t length;
    char bytes[TEXT_BYTES];
};

void text_plain(struct text *text, const char *added);
void text_whole(struct text *text, int64_t number);

// In quotes, as JSON in ASCII; bytes that are no UTF-8 become U+FFFD.
void text_quoted(struct text *text, const char *added);

// How many bytes of a string, in whole characters, take at most so many as JSON.
size_t text_fitting(const char *string, size_t quoted_max);

#endif
