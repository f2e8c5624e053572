/* Load generator for a RocketMQ broker: one thread, epoll, request frames encoded once and patched.
 *
 * It costs well under a microsecond per pipelined message, so that the figures are the broker's.
 * Every response is checked (code 0, the opaque of a request in flight, whole records in a pull); any other
 * response is counted in "errors" by its code, or under "mismatched". One JSON line goes to stdout.
 *
 *   loadgen send  --port P --topic T [--header json|rocketmq] [--connections N] [--window W] [--body B]
 *                 with --topics N the last 5 characters of T are the number of a topic: 00000 to N-1 in turn
 *   loadgen batch ... --count N          one SEND_BATCH_MESSAGE of N messages per operation
 *   loadgen pull  ... --count N --max-offset M     walks the queues from 0 to M, N messages per pull;
 *                                       with --max-bytes B as many as fit into B bytes
 *   loadgen deliver ... --rate R         sends to a fresh topic and long-polls every queue of it; latency is
 *                                        from the instant a send was due to its record in a pull response
 *   loadgen echo  --port P ...           the frames of `send`, against `loadgen serve --port P`
 *   loadgen sync  --file F --body B      pwrite + fdatasync of a preallocated file: the device alone. Its blocks
 *                                        were written before; with --ahead N they are new, and a write that
 *                                        reaches new ones is followed by N bytes of zeros
 *
 * With --rate R the operations are due at fixed instants, and latency counts from that instant, not from the
 * moment when the generator sends the request (no coordinated omission). --pid N adds the CPU time that process N
 * (all threads) used inside the measured window. --tls 1 uses TLS 1.3 and accepts any certificate; this needs a
 * compilation with -DWITH_TLS -lssl -lcrypto.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

enum { SEND = 310, BATCH = 320, PULL = 11 };
enum { JSON = 0, ROCKETMQ = 1 };
enum { RECORD_BODY_AT = 88, SUSPEND_MS = 5000 };
enum { NOT_FOUND = 19, RETRY_IMMEDIATELY = 20 };
enum { OPAQUE_FIRST = 1000000, OPAQUE_COUNT = 9000000 }; /* always 7 digits: patched in place */
enum { NUMBER_DIGITS = 5, MAX_TOPICS = 100000 };
enum { READ_BYTES = 1 << 20, MAX_FRAME_BYTES = 16 << 20, MAX_CODES = 4096 };

struct options {
    const char *mode, *host, *topic, *group, *broker_name, *file, *frame;
    int port, header, connections, window, body, queues, count, pid, sql, max_bytes, tls;
    long max_offset, ops, ahead, topics;
    double rate, warmup, duration;
};

/* A request frame, and the positions of its variable fields (-1: absent). */
struct template {
    char *bytes;
    int length, capacity;
    int at_opaque, at_queue, at_born, at_offset, at_unique, at_body, at_number;
};

struct slot {
    uint64_t started_ns;
    uint32_t opaque;
    int busy;
    int queue;
    long offset;
};

struct connection {
    int fd, write_armed;
    void *tls; /* SSL; NULL for plain TCP */
    char *in, *out;
    int in_length, in_capacity, out_length, out_from, out_capacity;
    uint32_t sequence;
    int busy, window;
    const struct template *frame;
    struct slot *slots;
};

static struct options opt;
static struct template send_frame, pull_frame;
static struct connection *connections; /* the senders or pullers; in deliver mode then one puller per queue */
static int delivering;
static int epoll_fd;
static uint64_t completed, messages, mismatched, response_bytes;
static uint64_t errors_by_code[MAX_CODES];
static int recording, stopping;
static uint64_t issued, unique_counter;

static void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- latency histogram: 128 linear steps in each power of two, under 1 % error ---- */

enum { STEPS_LOG2 = 7, STEPS = 1 << STEPS_LOG2, BUCKETS = (64 - STEPS_LOG2) * STEPS };
static uint64_t histogram[BUCKETS], histogram_total, histogram_max;

static int bucket_of(uint64_t value) {
    if (value < STEPS) return (int)value;
    int shift = 63 - __builtin_clzll(value) - STEPS_LOG2;
    return (shift + 1) * STEPS + (int)((value >> shift) - STEPS);
}

static double bucket_middle(int bucket) {
    if (bucket < STEPS) return bucket;
    int shift = bucket / STEPS - 1;
    return ((double)(bucket % STEPS) + STEPS + 0.5) * (double)(1ull << shift);
}

static void record(uint64_t ns) {
    histogram[bucket_of(ns)]++;
    histogram_total++;
    if (ns > histogram_max) histogram_max = ns;
}

static double quantile_us(double q) {
    uint64_t wanted = (uint64_t)(q * (double)histogram_total + 0.5), seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen >= wanted && seen > 0) return bucket_middle(i) / 1000.0;
    }
    return (double)histogram_max / 1000.0;
}

/* ---- building the template ---- */

static void put_bytes(struct template *t, const void *bytes, int length) {
    if (t->length + length > t->capacity) {
        t->capacity = (t->length + length) * 2;
        t->bytes = realloc(t->bytes, (size_t)t->capacity);
        if (t->bytes == NULL) die("out of memory");
    }
    memcpy(t->bytes + t->length, bytes, (size_t)length);
    t->length += length;
}

static void put_text(struct template *t, const char *text) { put_bytes(t, text, (int)strlen(text)); }

static void put_int(struct template *t, uint32_t value, int size) {
    for (int shift = (size - 1) * 8; shift >= 0; shift -= 8) {
        char byte = (char)(value >> shift);
        put_bytes(t, &byte, 1);
    }
}

static void store_int32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t load_int32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static int first_field;

/* One header field; returns where its value begins. In JSON the separators 1 and 2 of properties are escaped. */
static int put_field(struct template *t, const char *name, const char *value) {
    if (opt.header == ROCKETMQ) {
        put_int(t, (uint32_t)strlen(name), 2);
        put_text(t, name);
        put_int(t, (uint32_t)strlen(value), 4);
        int at = t->length;
        put_text(t, value);
        return at;
    }
    put_text(t, first_field ? "\"" : ",\"");
    first_field = 0;
    put_text(t, name);
    put_text(t, "\":\"");
    int at = t->length;
    for (const char *c = value; *c; c++) {
        if (*c == 1) put_text(t, "\\u0001");
        else if (*c == 2) put_text(t, "\\u0002");
        else put_bytes(t, c, 1);
    }
    put_text(t, "\"");
    return at;
}

static const char *UNIQUE_KEY = "7F0000010001000000000000";

static void message_properties(char *text, size_t size) {
    snprintf(text, size, "UNIQ_KEY\001%s00000000\002WAIT\001true\002%s", UNIQUE_KEY, opt.sql ? "a\0016\002b\001x\002" : "");
}

static void put_send_fields(struct template *t, int is_batch) {
    char properties[128];
    message_properties(properties, sizeof properties);
    put_field(t, "a", opt.group);
    int topic_at = put_field(t, "b", opt.topic);
    if (opt.topics > 0) t->at_number = topic_at + (int)strlen(opt.topic) - NUMBER_DIGITS;
    put_field(t, "c", "TBW102");
    put_field(t, "d", "4");
    t->at_queue = put_field(t, "e", "0");
    put_field(t, "f", "0");
    t->at_born = put_field(t, "g", "1700000000000");
    put_field(t, "h", "0");
    if (is_batch) {
        put_field(t, "i", "WAIT\001true\002");
    } else {
        int at = put_field(t, "i", properties);
        t->at_unique = at + 8 + (opt.header == JSON ? 6 : 1) + (int)strlen(UNIQUE_KEY);
    }
    put_field(t, "j", "0");
    put_field(t, "k", "false");
    put_field(t, "m", is_batch ? "true" : "false");
    put_field(t, "n", opt.broker_name);
}

static void put_pull_fields(struct template *t) {
    char number[16];
    snprintf(number, sizeof number, "%d", opt.count);
    put_field(t, "bname", opt.broker_name);
    put_field(t, "commitOffset", "0");
    put_field(t, "consumerGroup", opt.group);
    put_field(t, "expressionType", opt.sql ? "SQL92" : "TAG");
    put_field(t, "maxMsgNums", number);
    if (opt.max_bytes > 0) {
        snprintf(number, sizeof number, "%d", opt.max_bytes);
        put_field(t, "maxMsgBytes", number);
    }
    t->at_queue = put_field(t, "queueId", "0");
    t->at_offset = put_field(t, "queueOffset", "");
    put_field(t, "subVersion", "1700000000000");
    if (!opt.sql) put_field(t, "subscription", "*"); /* for SQL the subscription is in the group's heartbeat */
    snprintf(number, sizeof number, "%d", delivering ? SUSPEND_MS : 0);
    put_field(t, "suspendTimeoutMillis", number);
    put_field(t, "sysFlag", opt.sql ? "0" : delivering ? "6" : "4"); /* 4: has a subscription, 2: may be suspended; no commit */
    put_field(t, "topic", opt.topic);
}

static void put_body(struct template *t, int code) {
    char filler[256];
    for (int i = 0; i < 256; i++) filler[i] = (char)('a' + i % 26);
    char properties[128];
    message_properties(properties, sizeof properties);
    int items = code == BATCH ? opt.count : code == SEND ? 1 : 0;
    for (int item = 0; item < items; item++) {
        if (code == BATCH) {
            int properties_length = (int)strlen(properties);
            put_int(t, (uint32_t)(22 + opt.body + properties_length), 4);
            put_int(t, 0, 4); /* magic */
            put_int(t, 0, 4); /* CRC */
            put_int(t, 0, 4); /* flag */
            put_int(t, (uint32_t)opt.body, 4);
        }
        for (int left = opt.body; left > 0; left -= 256) put_bytes(t, filler, left < 256 ? left : 256);
        if (code == BATCH) {
            put_int(t, (uint32_t)strlen(properties), 2);
            put_text(t, properties);
        }
    }
}

/* A given frame with a JSON header and the opaque 1000000. Only the opaque changes, so the frame may be signed. */
static void load_template(struct template *t) {
    static const char opaque[] = "\"opaque\":";
    char buffer[65536];
    FILE *file = fopen(opt.frame, "rb");
    size_t length = file == NULL ? 0 : fread(buffer, 1, sizeof buffer, file);
    if (length == 0) die("cannot read %s", opt.frame);
    fclose(file);
    put_bytes(t, buffer, (int)length);
    char *at = memmem(t->bytes, (size_t)t->length, opaque, sizeof opaque - 1);
    if (at == NULL) die("%s: no opaque", opt.frame);
    t->at_opaque = (int)(at - t->bytes) + (int)sizeof opaque - 1;
}

static void build_template(struct template *t, int code) {
    char text[160];
    t->at_opaque = t->at_queue = t->at_born = t->at_offset = t->at_unique = t->at_body = t->at_number = -1;
    if (opt.frame != NULL) {
        load_template(t);
        return;
    }
    put_int(t, 0, 4);
    put_int(t, 0, 4);
    if (opt.header == JSON) {
        snprintf(text, sizeof text, "{\"code\":%d,\"extFields\":{", code);
        put_text(t, text);
        first_field = 1;
    } else {
        put_int(t, (uint32_t)code, 2);
        put_int(t, 0, 1);   /* JAVA */
        put_int(t, 479, 2); /* version */
        t->at_opaque = t->length;
        put_int(t, 0, 4);
        put_int(t, 0, 4); /* flag */
        put_int(t, 0, 4); /* remark */
        put_int(t, 0, 4); /* length of the fields, set below */
    }
    int fields_at = t->length;
    if (code == PULL) put_pull_fields(t);
    else put_send_fields(t, code == BATCH);
    if (opt.header == JSON) {
        put_text(t, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
        t->at_opaque = t->length;
        put_text(t, "1000000,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    } else {
        store_int32(t->bytes + fields_at - 4, (uint32_t)(t->length - fields_at));
    }
    store_int32(t->bytes + 4, ((uint32_t)opt.header << 24) | (uint32_t)(t->length - 8));
    if (delivering && code == SEND) t->at_body = t->length;
    put_body(t, code);
    store_int32(t->bytes, (uint32_t)(t->length - 4));
}

/* ---- one request ---- */

static int digits(char *out, uint64_t value) {
    char reversed[24];
    int n = 0;
    do reversed[n++] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    for (int i = 0; i < n; i++) out[i] = reversed[n - 1 - i];
    return n;
}

static void patch_born(char *at) {
    static char text[14];
    static uint64_t text_ms;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME_COARSE, &t);
    uint64_t ms = (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
    if (ms != text_ms) {
        digits(text, ms);
        text_ms = ms;
    }
    memcpy(at, text, 13);
}

static void patch_unique(char *at) {
    static const char HEX[] = "0123456789ABCDEF";
    uint64_t value = unique_counter++;
    for (int i = 7; i >= 0; i--, value >>= 4) at[i] = HEX[value & 15];
}

static void patch_number(char *at) {
    static long next;
    long value = next++ % opt.topics;
    for (int i = NUMBER_DIGITS - 1; i >= 0; i--, value /= 10) at[i] = (char)('0' + value % 10);
}

/* Copies the template, inserts the offset's digits if it has an offset, and patches the other fields. */
static int encode_request(char *out, const struct template *t, const struct slot *slot) {
    int shift = 0, shift_after = t->length;
    if (t->at_offset < 0) {
        memcpy(out, t->bytes, (size_t)t->length);
    } else {
        memcpy(out, t->bytes, (size_t)t->at_offset);
        shift = digits(out + t->at_offset, (uint64_t)slot->offset);
        memcpy(out + t->at_offset + shift, t->bytes + t->at_offset, (size_t)(t->length - t->at_offset));
        shift_after = t->at_offset;
        store_int32(out, load_int32(t->bytes) + (uint32_t)shift);
        store_int32(out + 4, load_int32(t->bytes + 4) + (uint32_t)shift);
        if (opt.header == ROCKETMQ) {
            int at = t->at_opaque + 12; /* the length of the fields */
            store_int32(out + at, load_int32(t->bytes + at) + (uint32_t)shift);
            store_int32(out + t->at_offset - 4, (uint32_t)shift);
        }
    }
    char *opaque = out + t->at_opaque + (t->at_opaque > shift_after ? shift : 0);
    if (opt.header == JSON) digits(opaque, slot->opaque);
    else store_int32(opaque, slot->opaque);
    if (t->at_queue >= 0) out[t->at_queue] = (char)('0' + slot->queue); /* always before the offset */
    if (t->at_born >= 0) patch_born(out + t->at_born);
    if (t->at_unique >= 0) patch_unique(out + t->at_unique);
    if (t->at_body >= 0) memcpy(out + t->at_body, &slot->started_ns, 8);
    if (t->at_number >= 0) patch_number(out + t->at_number);
    return t->length + shift;
}

static void arm(struct connection *c, int write) {
    struct epoll_event event = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = c};
    if (c->write_armed == write) return;
    c->write_armed = write;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
}

/* ---- bytes: over plain TCP, or over TLS ---- */

#ifdef WITH_TLS
static SSL_CTX *tls_context;

static void open_tls(struct connection *c) {
    if (tls_context == NULL) {
        tls_context = SSL_CTX_new(TLS_client_method());
        if (tls_context == NULL) die("no TLS context");
        SSL_CTX_set_min_proto_version(tls_context, TLS1_3_VERSION);
        SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_default_read_buffer_len(tls_context, READ_BYTES / 4);
        SSL_CTX_set_read_ahead(tls_context, 1);
    }
    SSL *tls = c->tls = SSL_new(tls_context);
    if (tls == NULL || SSL_set_fd(tls, c->fd) != 1 || SSL_connect(tls) != 1)
        die("no TLS handshake: %s", ERR_error_string(ERR_get_error(), NULL));
}

/* Converts the result of SSL_read or SSL_write into that of recv or send. */
static ssize_t outcome(SSL *tls, int n) {
    if (n > 0) return n;
    int error = SSL_get_error(tls, n);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) errno = EAGAIN;
    else if (error == SSL_ERROR_SSL) die("TLS: %s", ERR_error_string(ERR_get_error(), NULL));
    return -1;
}

static ssize_t put_out(struct connection *c, const char *bytes, size_t length) {
    if (c->tls != NULL) return outcome(c->tls, SSL_write(c->tls, bytes, (int)length));
    return send(c->fd, bytes, length, MSG_NOSIGNAL);
}

static ssize_t take_in(struct connection *c, char *bytes, size_t room) {
    if (c->tls != NULL) return outcome(c->tls, SSL_read(c->tls, bytes, (int)room));
    return recv(c->fd, bytes, room, 0);
}

/* Whether SSL holds bytes that were read from the socket but not by the caller: epoll does not report them. */
static int has_more(const struct connection *c) { return c->tls != NULL && SSL_has_pending(c->tls); }
#else
static void open_tls(struct connection *c) { (void)c; }
static int has_more(const struct connection *c) { return c->tls != NULL; }

static ssize_t put_out(struct connection *c, const char *bytes, size_t length) {
    return send(c->fd, bytes, length, MSG_NOSIGNAL);
}

static ssize_t take_in(struct connection *c, char *bytes, size_t room) { return recv(c->fd, bytes, room, 0); }
#endif

static void flush(struct connection *c) {
    while (c->out_from < c->out_length) {
        ssize_t n = put_out(c, c->out + c->out_from, (size_t)(c->out_length - c->out_from));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {
            arm(c, 1);
            return;
        }
        if (n < 0) die("send: %s", strerror(errno));
        c->out_from += (int)n;
    }
    c->out_from = c->out_length = 0;
    arm(c, 0);
}

static void issue(struct connection *c, struct slot *slot, uint64_t due_ns) {
    int room = c->frame->length + 24;
    if (c->out_length + room > c->out_capacity) {
        c->out_capacity = (c->out_length + room) * 2;
        c->out = realloc(c->out, (size_t)c->out_capacity);
        if (c->out == NULL) die("out of memory");
    }
    uint32_t turns = OPAQUE_COUNT / (uint32_t)c->window;
    c->sequence = (c->sequence + 1) % turns;
    slot->opaque = OPAQUE_FIRST + c->sequence * (uint32_t)c->window + (uint32_t)(slot - c->slots);
    slot->started_ns = due_ns;
    slot->busy = 1;
    c->busy++;
    issued++;
    c->out_length += encode_request(c->out + c->out_length, c->frame, slot);
}

/* ---- responses ---- */

static long json_number(const char *header, int length, const char *name) {
    const char *at = memmem(header, (size_t)length, name, strlen(name));
    return at == NULL ? -1 : strtol(at + strlen(name), NULL, 10);
}

/* The number of records in a pull response, or -1 if whole records do not fill it exactly. */
static int count_records(const char *body, int length) {
    int at = 0, count = 0;
    while (at + 8 <= length) {
        int size = (int)load_int32(body + at);
        if (size < 91 || size > length - at || (load_int32(body + at + 4) & 0xFFFFFFF0u) != 0xDAA320A0u) return -1;
        at += size;
        count++;
    }
    return at == length ? count : -1;
}

static void advance(struct slot *slot, int records) {
    slot->offset += records;
    if (slot->offset + opt.count > opt.max_offset) slot->offset = 0;
}

static void count_error(long code) { errors_by_code[code > 0 && code < MAX_CODES ? code : MAX_CODES - 1]++; }

/* Handles a pull response in deliver mode: every body begins with the instant when its send was due. */
static void settle_delivery(struct slot *slot, long code, const char *body, int body_length, uint64_t now) {
    if (code == NOT_FOUND || code == RETRY_IMMEDIATELY) return;
    int records = code == 0 ? count_records(body, body_length) : 0;
    if (code != 0 && recording) count_error(code);
    if (code == 0 && records <= 0) mismatched++;
    for (int at = 0, i = 0; i < records; i++, at += (int)load_int32(body + at)) {
        uint64_t due_ns;
        memcpy(&due_ns, body + at + RECORD_BODY_AT, 8);
        slot->offset++;
        if (!recording) continue;
        record(now - due_ns);
        completed++;
        messages++;
    }
}

static void settle(struct slot *slot, long code, const char *body, int body_length, uint64_t now) {
    int accepted = code == 0, carried = 1;
    if (strcmp(opt.mode, "pull") == 0) {
        carried = accepted ? count_records(body, body_length) : 0;
        if (accepted && carried <= 0) {
            mismatched++;
            accepted = 0;
        }
        advance(slot, carried > 0 ? carried : opt.count);
    } else {
        slot->queue = (slot->queue + 1) % opt.queues;
        if (strcmp(opt.mode, "batch") == 0) carried = opt.count;
        if (strcmp(opt.mode, "echo") == 0) accepted = 1;
    }
    if (!recording) return;
    if (delivering) {
        if (code != 0) count_error(code);
        return;
    }
    completed++;
    if (accepted) {
        messages += (uint64_t)carried;
        record(now > slot->started_ns ? now - slot->started_ns : 0);
    } else if (code != 0) {
        count_error(code);
    }
}

static void on_frame(struct connection *c, const char *bytes, int length, uint64_t now) {
    uint32_t word = load_int32(bytes + 4);
    int header_length = (int)(word & 0xFFFFFF);
    long code, opaque;
    if (header_length > length - 8) die("a response header of %d bytes in a frame of %d", header_length, length);
    if (word >> 24 == ROCKETMQ) {
        code = (int16_t)((bytes[8] & 0xFF) << 8 | (bytes[9] & 0xFF));
        opaque = (int32_t)load_int32(bytes + 13);
    } else {
        code = json_number(bytes + 8, header_length, "\"code\":");
        opaque = json_number(bytes + 8, header_length, "\"opaque\":");
    }
    struct slot *slot = opaque < OPAQUE_FIRST ? NULL : &c->slots[(opaque - OPAQUE_FIRST) % c->window];
    if (slot == NULL || !slot->busy || slot->opaque != (uint32_t)opaque) {
        mismatched++;
        return;
    }
    slot->busy = 0;
    c->busy--;
    if (recording) response_bytes += (uint64_t)length;
    const char *body = bytes + 8 + header_length;
    int body_length = length - 8 - header_length;
    if (delivering && c->frame == &pull_frame) {
        settle_delivery(slot, code, body, body_length, now);
        issue(c, slot, now);
        return;
    }
    settle(slot, code, body, body_length, now);
    if (opt.rate <= 0 && !stopping && (opt.ops <= 0 || issued < (uint64_t)opt.ops)) issue(c, slot, now);
}

/* Reads the bytes that are available at once; returns whether there may be more. */
static int receive(struct connection *c) {
    if (c->in_capacity - c->in_length < READ_BYTES / 2) {
        c->in_capacity *= 2;
        c->in = realloc(c->in, (size_t)c->in_capacity);
        if (c->in == NULL) die("out of memory");
    }
    ssize_t n = take_in(c, c->in + c->in_length, (size_t)(c->in_capacity - c->in_length));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) die("the server closed a connection (%s)", n == 0 ? "end of stream" : strerror(errno));
    c->in_length += (int)n;
    int from = 0;
    uint64_t now = now_ns();
    while (c->in_length - from >= 8) {
        uint32_t total = load_int32(c->in + from);
        if (total < 4 || total > MAX_FRAME_BYTES) die("a response frame of %u bytes", total);
        if ((uint32_t)(c->in_length - from) < total + 4) break;
        on_frame(c, c->in + from, (int)total + 4, now);
        from += (int)total + 4;
    }
    memmove(c->in, c->in + from, (size_t)(c->in_length - from));
    c->in_length -= from;
    return has_more(c);
}

static void on_readable(struct connection *c) {
    while (receive(c)) continue;
    if (c->out_length > c->out_from) flush(c);
}

/* ---- the run ---- */

static void open_connection(struct connection *c, const struct sockaddr_in *address, const struct template *t, int window) {
    int one = 1;
    c->frame = t;
    c->window = window;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)address, sizeof *address) < 0)
        die("cannot connect to %s:%d: %s", opt.host, opt.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (opt.tls) open_tls(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->in_capacity = READ_BYTES;
    c->in = malloc((size_t)c->in_capacity);
    c->slots = calloc((size_t)window, sizeof *c->slots);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event) < 0) die("epoll_ctl: %s", strerror(errno));
}

static void open_connections(const struct template *t) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1) die("not an IPv4 address: %s", opt.host);
    int pullers = delivering ? opt.queues : 0;
    connections = calloc((size_t)(opt.connections + pullers), sizeof *connections);
    for (int i = 0; i < opt.connections; i++) {
        struct connection *c = &connections[i];
        open_connection(c, &address, t, opt.window);
        for (int w = 0; w < opt.window; w++) {
            long number = (long)i * opt.window + w, total = (long)opt.connections * opt.window;
            c->slots[w].queue = (int)(number % opt.queues);
            /* Pull slots start at offsets spread over the queue, so that they do not all read the same page. */
            if (opt.max_offset > opt.count) c->slots[w].offset = (opt.max_offset - opt.count) * number / total;
        }
    }
    for (int i = 0; i < pullers; i++) {
        struct connection *c = &connections[opt.connections + i];
        open_connection(c, &address, &pull_frame, 1);
        c->slots[0].queue = i;
        issue(c, &c->slots[0], now_ns());
        flush(c);
    }
}

static double process_cpu_seconds(int pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) die("no process %d", pid);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double own_cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Waits for events until `deadline` at most; with microsecond timeouts if the kernel has epoll_pwait2. */
static int wait_events(struct epoll_event *events, int capacity, uint64_t deadline) {
    uint64_t now = now_ns();
    uint64_t left = deadline > now ? deadline - now : 0;
#ifdef SYS_epoll_pwait2
    struct timespec t = {.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};
    int n = (int)syscall(SYS_epoll_pwait2, epoll_fd, events, capacity, &t, NULL, (size_t)8);
    if (n >= 0 || errno != ENOSYS) return n;
#endif
    return epoll_wait(epoll_fd, events, capacity, (int)((left + 999999u) / 1000000u));
}

static struct slot *free_slot(struct connection *c) {
    if (c->busy == c->window) return NULL;
    for (int w = 0; w < c->window; w++)
        if (!c->slots[w].busy) return &c->slots[w];
    return NULL;
}

/* Issues the due operations and advances `due`; returns the time of the next look. An operation without a free
 * slot waits and keeps its due instant. */
static uint64_t issue_due(uint64_t *due, double interval_ns) {
    static double fraction;
    static int turn;
    uint64_t now = now_ns();
    while (*due <= now) {
        struct connection *c = NULL;
        struct slot *slot = NULL;
        for (int i = 0; i < opt.connections && slot == NULL; i++) {
            c = &connections[(turn + i) % opt.connections];
            slot = free_slot(c);
        }
        if (slot == NULL) return now + 50000;
        turn = (turn + 1) % opt.connections;
        issue(c, slot, *due);
        flush(c);
        fraction += interval_ns;
        *due += (uint64_t)fraction;
        fraction -= (double)(uint64_t)fraction;
    }
    return *due;
}

struct window_marks {
    uint64_t begin_ns, end_ns;
    double server_cpu, own_cpu;
};

static void run_load(struct window_marks *marks) {
    struct epoll_event events[256];
    uint64_t start = now_ns();
    uint64_t measure_from = start + (uint64_t)(opt.warmup * 1e9);
    uint64_t end = measure_from + (uint64_t)(opt.duration * 1e9);
    uint64_t due = start, look = UINT64_MAX;
    for (int i = 0; i < opt.connections && opt.rate <= 0; i++) {
        for (int w = 0; w < opt.window && (opt.ops <= 0 || issued < (uint64_t)opt.ops); w++)
            issue(&connections[i], &connections[i].slots[w], now_ns());
        flush(&connections[i]);
    }
    for (;;) {
        uint64_t now = now_ns();
        if (!recording && now >= measure_from) {
            recording = 1;
            marks->begin_ns = now;
            marks->own_cpu = own_cpu_seconds();
            if (opt.pid > 0) marks->server_cpu = process_cpu_seconds(opt.pid);
        }
        if (now >= end || (opt.ops > 0 && completed >= (uint64_t)opt.ops)) break;
        if (opt.rate > 0) look = issue_due(&due, 1e9 / opt.rate);
        uint64_t horizon = recording ? end : measure_from;
        int n = wait_events(events, 256, look < horizon ? look : horizon);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) flush(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT) on_readable(c);
        }
    }
    marks->end_ns = now_ns();
    marks->own_cpu = own_cpu_seconds() - marks->own_cpu;
    if (opt.pid > 0) marks->server_cpu = process_cpu_seconds(opt.pid) - marks->server_cpu;
    stopping = 1;
}

static void report(const struct window_marks *marks) {
    double seconds = (double)(marks->end_ns - marks->begin_ns) / 1e9;
    double per_op = completed > 0 ? 1e6 / (double)completed : 0;
    printf("{\"mode\":\"%s\",\"connections\":%d,\"window\":%d,\"body\":%d,\"header\":\"%s\",\"rate\":%.0f,", opt.mode,
           opt.connections, opt.window, opt.body, opt.header == JSON ? "json" : "rocketmq", opt.rate);
    printf("\"ops\":%lu,\"messages\":%lu,\"seconds\":%.4f,\"ops_per_second\":%.1f,\"messages_per_second\":%.1f,", completed,
           messages, seconds, (double)completed / seconds, (double)messages / seconds);
    printf("\"response_bytes\":%lu,\"mismatched\":%lu,\"errors\":{", response_bytes, mismatched);
    const char *separator = "";
    for (int code = 0; code < MAX_CODES; code++) {
        if (errors_by_code[code] == 0) continue;
        printf("%s\"%d\":%lu", separator, code, errors_by_code[code]);
        separator = ",";
    }
    printf("},\"generator_cpu_us\":%.4f,\"server_cpu_us\":%.4f,\"server_cpu_seconds\":%.3f,", marks->own_cpu * per_op,
           marks->server_cpu * per_op, marks->server_cpu);
    printf("\"latency_us\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f}}\n", quantile_us(0.5),
           quantile_us(0.9), quantile_us(0.99), quantile_us(0.999), (double)histogram_max / 1000.0);
}

/* ---- the other two programs: a bare echo server, and the device's own flush ---- */

static _Noreturn void serve_echo(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    inet_pton(AF_INET, opt.host, &address.sin_addr);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 128) < 0)
        die("cannot listen on %s:%d: %s", opt.host, opt.port, strerror(errno));
    socklen_t size = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("{\"port\":%d}\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[256];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    static char buffer[READ_BYTES];
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof buffer, 0);
            if (got <= 0 || send(fd, buffer, (size_t)got, MSG_NOSIGNAL) != got) close(fd);
        }
    }
}

static void put(int fd, const char *bytes, size_t length, off_t at) {
    if (pwrite(fd, bytes, length, at) != (ssize_t)length) die("pwrite: %s", strerror(errno));
}

static int measure_sync(void) {
    if (opt.file == NULL) die("sync needs --file");
    static char zeros[1 << 20];
    const off_t size = opt.ahead < 0 ? 64 << 20 : 1L << 30;
    if (opt.ahead > (long)sizeof zeros) die("--ahead: at most %zu", sizeof zeros);
    char *block = malloc((size_t)opt.body);
    memset(block, 'x', (size_t)opt.body);
    int fd = open(opt.file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, size) != 0) die("cannot make %s: %s", opt.file, strerror(errno));
    for (off_t at = 0; opt.ahead < 0 && at < size; at += (off_t)sizeof zeros) put(fd, zeros, sizeof zeros, at);
    fsync(fd);
    struct window_marks marks = {.begin_ns = now_ns(), .own_cpu = own_cpu_seconds()};
    uint64_t now = marks.begin_ns, end = now + (uint64_t)(opt.duration * 1e9);
    const off_t last = size - opt.body - (off_t)sizeof zeros;
    off_t at = 0, old = opt.ahead < 0 ? size : 0;
    while (now < end && at <= last) {
        uint64_t from = now;
        put(fd, block, (size_t)opt.body, at);
        at += opt.body;
        if (at > old) {
            put(fd, zeros, (size_t)opt.ahead, at);
            old = at + opt.ahead;
        }
        if (fdatasync(fd) < 0) die("fdatasync: %s", strerror(errno));
        if (opt.ahead < 0 && at > last) at = 0;
        now = now_ns();
        record(now - from);
        completed++;
    }
    marks.end_ns = now;
    marks.own_cpu = own_cpu_seconds() - marks.own_cpu;
    unlink(opt.file);
    report(&marks);
    return 0;
}

/* ---- command line ---- */

static void usage(void) {
    die("send|batch|pull|deliver|echo|serve|sync [--host A] --port P --topic T [--header json|rocketmq] [--connections N]\n"
        "  [--window N] [--body BYTES] [--queues 1-10] [--count N] [--max-offset N] [--ops N] [--rate OPS_PER_SECOND]\n"
        "  [--warmup S] [--duration S] [--group G] [--broker-name B] [--pid SERVER_PID] [--file PATH]\n"
        "  [--ahead BYTES] [--topics N] [--sql 0|1] [--frame PATH] [--tls 0|1]");
}

static void parse_options(int argc, char **argv) {
    static const struct option names[] = {
        {"host", 1, 0, 'h'},     {"port", 1, 0, 'p'},   {"topic", 1, 0, 't'},  {"header", 1, 0, 'H'},      {"connections", 1, 0, 'c'},
        {"window", 1, 0, 'w'},   {"body", 1, 0, 'b'},   {"queues", 1, 0, 'q'}, {"count", 1, 0, 'n'},       {"max-offset", 1, 0, 'm'},
        {"ops", 1, 0, 'o'},      {"rate", 1, 0, 'r'},   {"warmup", 1, 0, 'W'}, {"duration", 1, 0, 'd'},    {"group", 1, 0, 'g'},
        {"pid", 1, 0, 'P'},      {"file", 1, 0, 'f'},   {"broker-name", 1, 0, 'B'}, {"ahead", 1, 0, 'a'},
        {"topics", 1, 0, 'N'},   {"sql", 1, 0, 's'},   {"max-bytes", 1, 0, 'B' + 128}, {"frame", 1, 0, 'F'},
        {"tls", 1, 0, 'T'},
        {0, 0, 0, 0},
    };
    if (argc < 2) usage();
    opt = (struct options){.mode = argv[1], .host = "127.0.0.1", .topic = "bench", .group = "bench", .broker_name = "broker-a",
                           .connections = 1, .window = 1, .body = 128, .queues = 8, .count = 32, .ahead = -1, .duration = 5, .warmup = 1};
    optind = 2;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'h': opt.host = optarg; break;
        case 'p': opt.port = atoi(optarg); break;
        case 't': opt.topic = optarg; break;
        case 'H': opt.header = strcmp(optarg, "rocketmq") == 0 ? ROCKETMQ : JSON; break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'w': opt.window = atoi(optarg); break;
        case 'b': opt.body = atoi(optarg); break;
        case 'q': opt.queues = atoi(optarg); break;
        case 'n': opt.count = atoi(optarg); break;
        case 'm': opt.max_offset = atol(optarg); break;
        case 'o': opt.ops = atol(optarg); break;
        case 'r': opt.rate = atof(optarg); break;
        case 'W': opt.warmup = atof(optarg); break;
        case 'd': opt.duration = atof(optarg); break;
        case 'g': opt.group = optarg; break;
        case 'P': opt.pid = atoi(optarg); break;
        case 'f': opt.file = optarg; break;
        case 'a': opt.ahead = atol(optarg); break;
        case 'B': opt.broker_name = optarg; break;
        case 'N': opt.topics = atol(optarg); break;
        case 's': opt.sql = atoi(optarg); break;
        case 'F': opt.frame = optarg; break;
        case 'T': opt.tls = atoi(optarg); break;
        case 'B' + 128: opt.max_bytes = atoi(optarg); break;
        default: usage();
        }
    }
    if (opt.connections < 1 || opt.window < 1 || opt.body < 1 || opt.queues < 1 || opt.queues > 10 || opt.count < 1) usage();
    if (opt.topics < 0 || opt.topics > MAX_TOPICS || (opt.topics > 0 && strlen(opt.topic) < NUMBER_DIGITS)) usage();
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
#ifndef WITH_TLS
    if (opt.tls) die("compiled without TLS: no OpenSSL headers (Debian: libssl-dev)");
#endif
    epoll_fd = epoll_create1(0);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    if (strcmp(opt.mode, "serve") == 0) serve_echo();
    if (strcmp(opt.mode, "sync") == 0) return measure_sync();
    static const char *MODES[] = {"send", "echo", "batch", "pull", "deliver"};
    int mode = 0;
    while (mode < 5 && strcmp(opt.mode, MODES[mode]) != 0) mode++;
    if (mode == 5) usage();
    int pulling = mode == 3;
    delivering = mode == 4;
    if (pulling && opt.max_offset < opt.count) die("pull needs --max-offset of at least --count");
    if (delivering && (opt.rate <= 0 || opt.body < 8)) die("deliver needs --rate, and a --body of at least 8");
    if (pulling || delivering) build_template(&pull_frame, PULL);
    if (!pulling) build_template(&send_frame, mode == 2 ? BATCH : SEND);
    open_connections(pulling ? &pull_frame : &send_frame);
    struct window_marks marks = {0};
    run_load(&marks);
    report(&marks);
    return 0;
}
