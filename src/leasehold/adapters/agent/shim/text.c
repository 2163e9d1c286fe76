#include "text.h"

#include <stdio.h>
#include <string.h>

enum { REPLACEMENT = 0xfffd, ESCAPED_BYTES = 16 };

static void add(struct text *text, const char *bytes, size_t count)
{
    if (count <= sizeof text->bytes - text->length) {
        memcpy(text->bytes + text->length, bytes, count);
        text->length += count;
    }
}

void text_plain(struct text *text, const char *added)
{
    add(text, added, strlen(added));
}

void text_whole(struct text *text, int64_t number)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)number);
    text_plain(text, digits);
}

// Returns the number of continuation bytes of a UTF-8 character; -1 if the byte cannot start one.
static int more_after(unsigned char first)
{
    if (first < 0x80) {
        return 0;
    }
    if (first >= 0xc2 && first <= 0xdf) {
        return 1;
    }
    if (first >= 0xe0 && first <= 0xef) {
        return 2;
    }
    return first >= 0xf0 && first <= 0xf4 ? 3 : -1;
}

// Decodes the first character and its size. One byte is skipped if it is invalid.
static uint32_t decode(const char *string, size_t *size)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)string[0];
    int more = more_after(first);
    *size = 1;
    if (more <= 0) {
        return more < 0 ? REPLACEMENT : first;
    }
    uint32_t character = first & (0x3fu >> more);
    for (int index = 1; index <= more; index++) {
        unsigned char next = (unsigned char)string[index];
        if ((next & 0xc0) != 0x80) { // also at the end of the string
            return REPLACEMENT;
        }
        character = character << 6 | (next & 0x3fu);
    }
    if (character < least[more] || character > 0x10ffff ||
        (character >= 0xd800 && character <= 0xdfff)) {
        return REPLACEMENT;
    }
    *size = (size_t)more + 1;
    return character;
}

static size_t escape(uint32_t character, char *to)
{
    static const char *const names = "\"\"\\\\\nn\rr\tt\ff\bb";
    for (const char *name = names; *name; name += 2) {
        if (character == (unsigned char)name[0]) {
            to[0] = '\\';
            to[1] = name[1];
            return 2;
        }
    }
    if (character >= ' ' && character <= '~') {
        to[0] = (char)character;
        return 1;
    }
    if (character < 0x10000) {
        return (size_t)snprintf(to, ESCAPED_BYTES, "\\u%04x", (unsigned)character);
    }
    unsigned above = (unsigned)character - 0x10000;
    unsigned high = 0xd800 + (above >> 10), low = 0xdc00 + (above & 0x3ff);
    return (size_t)snprintf(to, ESCAPED_BYTES, "\\u%04x\\u%04x", high, low);
}

void text_quoted(struct text *text, const char *added)
{
    char escaped[ESCAPED_BYTES];
    size_t size;
    add(text, "\"", 1);
    for (; *added; added += size) {
        uint32_t character = decode(added, &size);
        add(text, escaped, escape(character, escaped));
    }
    add(text, "\"", 1);
}

size_t text_fitting(const char *string, size_t quoted_max)
{
    char escaped[ESCAPED_BYTES];
    size_t fitting = 0, quoted = 0, size;
    for (; string[fitting]; fitting += size) {
        quoted += escape(decode(string + fitting, &size), escaped);
        if (quoted > quoted_max) {
            break;
        }
    }
    return fitting;
}
