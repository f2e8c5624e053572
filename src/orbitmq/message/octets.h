/* Numbers (big-endian) and stretches of bytes at a place of a buffer. Here, since a call into another compiled
   module is never inlined, and some hundred of these are made for one pull. Uncompiled: octets.py. */
#ifndef ORBITMQ_OCTETS_H
#define ORBITMQ_OCTETS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int orbitmq_get_i16(const uint8_t *buf, ptrdiff_t pos)
{
    return (int16_t)(buf[pos] << 8 | buf[pos + 1]);
}

static inline int orbitmq_get_i32(const uint8_t *buf, ptrdiff_t pos)
{
    return (int32_t)((uint32_t)buf[pos] << 24 | (uint32_t)buf[pos + 1] << 16 | (uint32_t)buf[pos + 2] << 8 | buf[pos + 3]);
}

static inline int64_t orbitmq_get_i64(const uint8_t *buf, ptrdiff_t pos)
{
    return (int64_t)((uint64_t)(uint32_t)orbitmq_get_i32(buf, pos) << 32 | (uint32_t)orbitmq_get_i32(buf, pos + 4));
}

static inline void orbitmq_put_i16(uint8_t *out, ptrdiff_t at, int64_t value)
{
    out[at] = (uint8_t)(value >> 8);
    out[at + 1] = (uint8_t)value;
}

static inline void orbitmq_put_i32(uint8_t *out, ptrdiff_t at, int64_t value)
{
    orbitmq_put_i16(out, at, value >> 16);
    orbitmq_put_i16(out, at + 2, value);
}

static inline void orbitmq_put_i64(uint8_t *out, ptrdiff_t at, int64_t value)
{
    orbitmq_put_i32(out, at, value >> 32);
    orbitmq_put_i32(out, at + 4, value);
}

static inline void orbitmq_copy(uint8_t *out, ptrdiff_t at, const uint8_t *source, ptrdiff_t pos, ptrdiff_t length)
{
    memcpy(out + at, source + pos, (size_t)length);
}

static inline int orbitmq_same(const uint8_t *buf, ptrdiff_t pos, const uint8_t *other, ptrdiff_t at, ptrdiff_t length)
{
    return memcmp(buf + pos, other + at, (size_t)length) == 0;
}

/* The place of the first such byte in [start, end), or end. */
static inline ptrdiff_t orbitmq_find(const uint8_t *buf, int byte, ptrdiff_t start, ptrdiff_t end)
{
    const uint8_t *place = memchr(buf + start, byte, (size_t)(end - start));
    return place ? place - buf : end;
}

#endif
