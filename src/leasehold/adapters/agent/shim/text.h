// Bounded text, and JSON strings in the format of Python's `json.dumps`.
//
// Used for every record and message of a shim. Text that does not fit is left out: callers shorten
// text from outside (a path, a name) with `text_fitting` first.

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

// Appends a quoted ASCII JSON string; bytes that are not UTF-8 become U+FFFD.
void text_quoted(struct text *text, const char *added);

// Returns how many bytes of a string, in whole characters, fit into `quoted_max` bytes of JSON.
size_t text_fitting(const char *string, size_t quoted_max);

#endif
