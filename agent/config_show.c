// SPDX-License-Identifier: Apache-2.0
// What people and documents see of the table of options.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/config.h"
#include "agent/config_option.h"
#include "base/buf.h"

#define VALUE_SIZE 1100

static const char *const no_password = "none";

static const char *choice_at(const struct config_option *option, unsigned index, char *buf,
                             size_t size)
{
    const char *choices = option->choices;

    for (; index > 0; index--)
        choices = strchr(choices, '|') + 1; // set_choice stored a valid index
    (void)snprintf(buf, size, "%.*s", (int)strcspn(choices, "|"), choices);
    return buf;
}

// The value as it would be written into the file, without quotes.
static const char *format_value(const struct config *config, const struct config_option *option,
                                char *buf, size_t size)
{
    const char *field = (const char *)config + option->offset;
    int64_t number = 0;
    unsigned index = 0;

    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_CHOICE_TEXT: (void)snprintf(buf, size, "%s", field); break;
    case OPTION_CHOICE:
        memcpy(&index, field, sizeof(index));
        return choice_at(option, index, buf, size);
    case OPTION_NUMBER:
        memcpy(&number, field, sizeof(number));
        (void)snprintf(buf, size, "%" PRId64, number);
        break;
    case OPTION_DURATION:
        memcpy(&number, field, sizeof(number));
        return duration_format(number, buf, size);
    case OPTION_BOOL: (void)snprintf(buf, size, "%s", *field ? "true" : "false"); break;
    }
    return buf;
}

static bool is_text(const struct config_option *option)
{
    return option->type == OPTION_TEXT;
}

static void put_source(const struct config *config, size_t index, struct buf *out)
{
    const struct config_option *option = &config_options[index];
    char annotation[CONFIG_ANNOTATION_SIZE];

    switch (config->origin[index].source) {
    case CONFIG_FROM_DEFAULT: buf_puts(out, "default"); break;
    case CONFIG_FROM_FILE: buf_printf(out, "file, line %d", config->origin[index].line); break;
    case CONFIG_FROM_ENV: buf_printf(out, "environment %s", option->env); break;
    }
    if (config->origin[index].source == CONFIG_FROM_ENV && (option->flags & OPTION_PER_POD))
        buf_printf(out, ", annotation %s",
                   config_annotation(option, annotation, sizeof(annotation)));
}

static const char *password_origin(const struct config *config, bool in_env)
{
    if (config->postgres.password_file[0])
        return "postgres.passwordFile";
    return in_env ? "environment PGPASSWORD" : no_password;
}

void config_show_yaml(const struct config *config, bool password_in_env, struct buf *out)
{
    char value[VALUE_SIZE];
    size_t section_len = 0;
    const char *section = "";

    buf_printf(out, "# password: %s\n", password_origin(config, password_in_env));
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        const char *dot = strchr(option->key, '.');
        size_t len = dot ? (size_t)(dot - option->key) : 0;

        if (len && (len != section_len || memcmp(section, option->key, len) != 0))
            buf_printf(out, "%.*s:\n", (int)len, option->key);
        section = option->key;
        section_len = len;
        buf_printf(out, "%s%s: ", dot ? "  " : "", dot ? dot + 1 : option->key);
        format_value(config, option, value, sizeof(value));
        if (is_text(option))
            buf_put_json(out, value); // a JSON string is a YAML string
        else
            buf_puts(out, value);
        buf_puts(out, " # ");
        put_source(config, i, out);
        buf_putc(out, '\n');
    }
}

void config_show_json(const struct config *config, bool password_in_env, struct buf *out)
{
    char value[VALUE_SIZE];

    buf_puts(out, "{\"password\":{\"source\":");
    buf_put_json(out, password_origin(config, password_in_env));
    buf_putc(out, '}');
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];

        format_value(config, option, value, sizeof(value));
        buf_printf(out, ",\"%s\":{\"value\":", option->key);
        if (option->type == OPTION_NUMBER || option->type == OPTION_BOOL)
            buf_puts(out, value);
        else
            buf_put_json(out, value);
        buf_puts(out, ",\"source\":\"");
        put_source(config, i, out);
        buf_puts(out, "\"}");
    }
    buf_puts(out, "}\n");
}

static void put_type(const struct config_option *option, struct buf *out)
{
    char min[32];
    char max[32];

    switch (option->type) {
    case OPTION_TEXT:
        buf_puts(out, option->flags & OPTION_ABSOLUTE ? "absolute path" : "text");
        break;
    case OPTION_CHOICE:
    case OPTION_CHOICE_TEXT: buf_puts(out, option->choices); break;
    case OPTION_BOOL: buf_puts(out, "true|false"); break;
    case OPTION_NUMBER:
        buf_printf(out, "%" PRId64 " to %" PRId64, option->min, option->max);
        break;
    case OPTION_DURATION:
        buf_printf(out, "%s to %s", duration_format(option->min, min, sizeof(min)),
                   duration_format(option->max, max, sizeof(max)));
        break;
    }
}

void config_describe(struct buf *out)
{
    char annotation[CONFIG_ANNOTATION_SIZE];

    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];

        buf_printf(out, "%s (", option->key);
        put_type(option, out);
        if (option->fallback)
            buf_printf(out, "; default %s", option->fallback);
        else if (option->flags & OPTION_REQUIRED)
            buf_puts(out, "; required");
        if (option->env)
            buf_printf(out, "; environment %s", option->env);
        if (option->flags & OPTION_PER_POD)
            buf_printf(out, "; annotation %s",
                       config_annotation(option, annotation, sizeof(annotation)));
        buf_printf(out, ")\n    %s\n", option->doc);
    }
}

static void put_member(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, ",\"%s\":", name);
    buf_put_json(out, value);
}

void config_describe_json(struct buf *out)
{
    char annotation[CONFIG_ANNOTATION_SIZE];

    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        struct buf type = {0};

        put_type(option, &type);
        buf_puts(out, i ? ",{\"key\":" : "[{\"key\":");
        buf_put_json(out, option->key);
        put_member(out, "type", buf_str(&type));
        if (option->fallback)
            put_member(out, "default", option->fallback);
        buf_printf(out, ",\"required\":%s",
                   (option->flags & OPTION_REQUIRED) && !option->fallback ? "true" : "false");
        if (option->env)
            put_member(out, "environment", option->env);
        if (option->flags & OPTION_PER_POD)
            put_member(out, "annotation",
                       config_annotation(option, annotation, sizeof(annotation)));
        put_member(out, "doc", option->doc);
        buf_putc(out, '}');
        buf_done(&type);
    }
    buf_putc(out, ']');
}
