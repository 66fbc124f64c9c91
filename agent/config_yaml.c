// SPDX-License-Identifier: Apache-2.0
#include "agent/config_yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <yaml.h>

enum node_role { NODE_ROOT, NODE_KEY, NODE_VALUE };

struct walk {
    const char *file;
    const struct config_yaml_visitor *visitor;
    struct err *err; // the first mistake
    bool has_failed;
    int documents;
    int depth; // 0 outside, 1 in the root mapping, 2 in a section
    int skip;  // mappings and lists open inside something that was refused
    bool has_key;
    bool is_key_refused;
    char section[CONFIG_KEY_SIZE];
    struct config_scalar scalar; // its key part is the pending key
};

int config_fault(struct err *err, const struct config_place *place, const char *fmt, ...)
{
    va_list args;
    char text[sizeof(err->msg)];

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); // a cut message is the contract
    va_end(args);
    return err_set(err, ERR_INVALID, 0, "%s:%d:%d: %s", place->file, place->line, place->column,
                   text);
}

const char *config_quote(const char *text, char *buf, size_t size)
{
    static const char ellipsis[] = "…";
    size_t len = strlen(text);
    size_t keep = len;

    if (len >= size) {
        keep = size - sizeof(ellipsis);
        // Not in the middle of a UTF-8 sequence.
        while (keep > 0 && ((unsigned char)text[keep] & 0xC0U) == 0x80U)
            keep--;
    }
    for (size_t i = 0; i < keep; i++) {
        unsigned char c = (unsigned char)text[i];
        buf[i] = (c < 0x20 || c == 0x7f) ? '?' : text[i];
    }
    buf[keep] = '\0';
    if (keep < len)
        memcpy(buf + keep, ellipsis, sizeof(ellipsis));
    return buf;
}

static struct config_place place_of(const struct walk *walk, yaml_mark_t mark)
{
    return (struct config_place){walk->file, (int)mark.line + 1, (int)mark.column + 1};
}

// Keeps the first mistake only.
static void refuse(struct walk *walk, const struct err *err)
{
    if (walk->has_failed)
        return;
    walk->has_failed = true;
    *walk->err = *err;
}

static void refuse_at(struct walk *walk, yaml_mark_t mark, const char *text)
{
    struct config_place place = place_of(walk, mark);
    struct err err = {0};

    (void)config_fault(&err, &place, "%s", text);
    refuse(walk, &err);
}

static enum node_role next_role(const struct walk *walk)
{
    if (walk->depth == 0)
        return NODE_ROOT;
    return walk->has_key ? NODE_VALUE : NODE_KEY;
}

// A node that can't be used stands where a key or a value is due.
static void consume_refused(struct walk *walk)
{
    if (next_role(walk) == NODE_KEY) {
        walk->has_key = true;
        walk->is_key_refused = true;
    } else {
        walk->has_key = false;
    }
}

static void take_key(struct walk *walk, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    struct config_scalar *scalar = &walk->scalar;

    (void)snprintf(scalar->key, sizeof(scalar->key), walk->depth == 2 ? "%s.%s" : "%s%s",
                   walk->depth == 2 ? walk->section : "", text);
    scalar->key_place = place_of(walk, event->start_mark);
    walk->has_key = true;
    walk->is_key_refused = false;
}

static void take_value(struct walk *walk, const yaml_event_t *event)
{
    struct config_scalar *scalar = &walk->scalar;
    struct err err = {0};

    walk->has_key = false;
    if (walk->is_key_refused)
        return;
    scalar->value = (const char *)event->data.scalar.value;
    scalar->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    scalar->value_place = place_of(walk, event->start_mark);
    if (walk->visitor->on_scalar(scalar, walk->visitor->arg, &err) < 0)
        refuse(walk, &err);
}

static void on_scalar(struct walk *walk, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;

    if (walk->skip)
        return;
    if (event->data.scalar.anchor || event->data.scalar.tag) {
        refuse_at(walk, event->start_mark,
                  "anchors and tags (&x, !x) are not allowed: write the plain value");
        consume_refused(walk);
        return;
    }
    if (strlen(text) != event->data.scalar.length) {
        refuse_at(walk, event->start_mark, "a NUL byte is not allowed here: remove it");
        consume_refused(walk);
        return;
    }
    switch (next_role(walk)) {
    case NODE_ROOT:
        if (text[0] != '\0')
            refuse_at(walk, event->start_mark,
                      "the file must consist of \"key: value\" lines, this is bare text");
        break;
    case NODE_KEY: take_key(walk, event); break;
    case NODE_VALUE: take_value(walk, event); break;
    }
}

static void skip_node(struct walk *walk, const yaml_event_t *event, const char *text)
{
    refuse_at(walk, event->start_mark, text);
    consume_refused(walk);
    walk->skip = 1;
}

static void on_sequence(struct walk *walk, const yaml_event_t *event)
{
    if (walk->skip)
        walk->skip++;
    else
        skip_node(walk, event, "no option takes a list: write a single value");
}

static void on_mapping(struct walk *walk, const yaml_event_t *event)
{
    struct err err = {0};

    if (walk->skip) {
        walk->skip++;
        return;
    }
    if (event->data.mapping_start.anchor || event->data.mapping_start.tag) {
        skip_node(walk, event,
                  "anchors and tags (&x, !x) are not allowed: write the section out");
        return;
    }
    if (walk->depth == 0) {
        walk->depth = 1;
        return;
    }
    if (walk->depth == 2 || !walk->has_key) {
        skip_node(walk, event, "nested too deep: an option is \"section.key\", nothing deeper");
        return;
    }
    walk->has_key = false;
    if (walk->is_key_refused) {
        walk->skip = 1;
        return;
    }
    if (walk->visitor->on_section(walk->scalar.key, &walk->scalar.key_place, walk->visitor->arg,
                                  &err) < 0) {
        refuse(walk, &err);
        walk->skip = 1;
        return;
    }
    memcpy(walk->section, walk->scalar.key, sizeof(walk->section));
    walk->depth = 2;
}

static void on_end(struct walk *walk)
{
    if (walk->skip)
        walk->skip--;
    else if (walk->depth > 0)
        walk->depth--;
}

static void on_document(struct walk *walk, const yaml_event_t *event)
{
    if (++walk->documents < 2)
        return;
    refuse_at(walk, event->start_mark, "a second document (---) is not allowed: keep one");
    walk->skip = 1; // never left again: nothing behind this point counts
}

static void on_event(struct walk *walk, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT: break;
    case YAML_DOCUMENT_START_EVENT: on_document(walk, event); break;
    case YAML_ALIAS_EVENT:
        if (walk->skip)
            break;
        refuse_at(walk, event->start_mark, "aliases (*x) are not allowed: write the value out");
        consume_refused(walk);
        break;
    case YAML_SCALAR_EVENT: on_scalar(walk, event); break;
    case YAML_SEQUENCE_START_EVENT: on_sequence(walk, event); break;
    case YAML_MAPPING_START_EVENT: on_mapping(walk, event); break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: on_end(walk); break;
    }
}

// The scanner gives a mark, the reader (bad UTF-8, control bytes) only an offset.
static void refuse_syntax(struct walk *walk, const yaml_parser_t *parser, const char *bytes,
                          size_t len)
{
    yaml_mark_t mark = parser->problem_mark;
    struct err err = {0};
    struct config_place place;

    if (parser->error == YAML_READER_ERROR) {
        mark = (yaml_mark_t){0};
        for (size_t i = 0; i < len && i < parser->problem_offset; i++) {
            mark.column = bytes[i] == '\n' ? 0 : mark.column + 1;
            mark.line += bytes[i] == '\n';
        }
    }
    place = place_of(walk, mark);
    (void)config_fault(&err, &place, "not YAML: %s%s%s",
                       parser->problem ? parser->problem : "out of memory",
                       parser->context ? ", " : "", parser->context ? parser->context : "");
    refuse(walk, &err);
}

int config_yaml_walk(const char *file, const char *bytes, size_t len,
                     const struct config_yaml_visitor *visitor, struct err *err)
{
    struct walk walk = {.file = file, .visitor = visitor, .err = err};
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_more = true;

    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_TRANSIENT, 0, "out of memory for the YAML parser");
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, len);
    while (has_more) {
        if (!yaml_parser_parse(&parser, &event)) {
            refuse_syntax(&walk, &parser, bytes, len);
            break;
        }
        on_event(&walk, &event);
        has_more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return walk.has_failed ? -1 : 0;
}
