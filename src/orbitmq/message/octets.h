/* Numbers (big-endian) and stretches of bytes at a place of a buffer. Here, since a call into another compiled
   module is never inlined, and some hundred of these are made for one pull. Uncompiled: octets.py. */
#ifndef ORBITMQ_OCTETS_H
#define ORBITMQ_OCTETS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Counted from a pointer of their own: only so gcc makes one load of the bytes. */
static inline int orbitmq_get_i16(const uint8_t *buf, ptrdiff_t pos)
{
    const uint8_t *at = buf + pos;
    return (int16_t)(at[0] << 8 | at[1]);
}

static inline int orbitmq_get_i32(const uint8_t *buf, ptrdiff_t pos)
{
    const uint8_t *at = buf + pos;
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static inline int64_t orbitmq_get_i64(const uint8_t *buf, ptrdiff_t pos)
{
    const uint8_t *at = buf + pos;
    return (int64_t)((uint64_t)at[0] << 56 | (uint64_t)at[1] << 48 | (uint64_t)at[2] << 40 | (uint64_t)at[3] << 32 |
                     (uint64_t)at[4] << 24 | (uint64_t)at[5] << 16 | (uint64_t)at[6] << 8 | at[7]);
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

/* Bytes that are read soon: in memory that is read once, waiting for them costs more than the reading. */
static inline void orbitmq_fetch(const uint8_t *buf, ptrdiff_t at, ptrdiff_t length)
{
#if defined(__GNUC__) || defined(__clang__)
    for (const uint8_t *line = buf + at, *end = line + length; line < end; line += 64)
        __builtin_prefetch(line);
#else
    (void)buf;
    (void)at;
    (void)length;
#endif
}

/* Names are short, and a call of memcmp costs more than comparing them. */
static inline int orbitmq_same(const uint8_t *buf, ptrdiff_t pos, const uint8_t *other, ptrdiff_t at, ptrdiff_t length)
{
    const uint8_t *left = buf + pos, *right = other + at;
    if (length > 16)
        return memcmp(left, right, (size_t)length) == 0;
    if (length >= 8)
        return memcmp(left, right, 8) == 0 && memcmp(left + length - 8, right + length - 8, 8) == 0;
    while (length > 0 && left[length - 1] == right[length - 1])
        length--;
    return length == 0;
}

/* The place of the first such byte in [start, end), or end. Properties are as short as names. */
static inline ptrdiff_t orbitmq_find(const uint8_t *buf, int byte, ptrdiff_t start, ptrdiff_t end)
{
#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8((char)byte);
    for (; end - start >= 16; start += 16) {
        int hits = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(buf + start)), wanted));
        if (hits)
            return start + __builtin_ctz((unsigned)hits);
    }
    while (start < end && buf[start] != byte)
        start++;
    return start;
#else
    const uint8_t *place = memchr(buf + start, byte, (size_t)(end - start));
    return place ? place - buf : end;
#endif
}

#endif
