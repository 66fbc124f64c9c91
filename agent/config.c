// SPDX-License-Identifier: Apache-2.0
#include "agent/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/config_option.h"
#include "agent/config_yaml.h"
#include "base/buf.h"

#define SECTIONS_MAX 12

struct parse {
    struct config *config;
    struct {
        const char *name; // borrowed from the table's key
        size_t len;
        int line;
    } sections[SECTIONS_MAX];
    size_t section_count;
};

static int64_t *number_at(struct config *config, const struct config_option *option)
{
    return (int64_t *)(void *)((char *)config + option->offset);
}

static char *text_at(struct config *config, const struct config_option *option)
{
    return (char *)config + option->offset;
}

// "table" or "schema.table", each of letters, digits and underscore.
static bool is_table_name(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t first = strspn(text, allowed);
    size_t second = text[first] == '.' ? strspn(text + first + 1, allowed) : 0;

    if (first == 0 || first >= CONFIG_NAME_SIZE || second >= CONFIG_NAME_SIZE)
        return false;
    return text[first] == '\0' || (second > 0 && text[first + 1 + second] == '\0');
}

static int set_text(struct config *config, const struct config_option *option,
                    const char *value, struct err *err)
{
    size_t len = strlen(value);

    if (len >= option->size)
        return err_set(err, ERR_INVALID, 0, "%zu bytes are too long: at most %zu", len,
                       option->size - 1);
    if (len == 0 && (option->flags & OPTION_REQUIRED))
        return err_set(err, ERR_INVALID, 0, "is empty: give a value");
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_INVALID, 0, "control bytes are not allowed: remove them");
    if ((option->flags & OPTION_ABSOLUTE) && len && value[0] != '/')
        return err_set(err, ERR_INVALID, 0, "must be an absolute path, starting with /");
    if ((option->flags & OPTION_NO_SPACE) && strpbrk(value, " \t"))
        return err_set(err, ERR_INVALID, 0, "must not contain spaces");
    if ((option->flags & OPTION_TABLE) && !is_table_name(value))
        return err_set(err, ERR_INVALID, 0,
                       "must be a table or schema.table of letters, digits and underscores");
    memset(text_at(config, option), 0, option->size);
    memcpy(text_at(config, option), value, len);
    return 0;
}

// Writes the n-th of "a|b|c" to `ret` (NUL-terminated); false when there is no n-th.
static bool choice_name(const char *choices, unsigned n, char *ret, size_t size)
{
    const char *end = NULL;

    for (; n > 0; n--) {
        choices = strchr(choices, '|');
        if (!choices)
            return false;
        choices++;
    }
    end = strchrnul(choices, '|');
    assert((size_t)(end - choices) < size);
    memcpy(ret, choices, (size_t)(end - choices));
    ret[end - choices] = '\0';
    return true;
}

static int set_choice(struct config *config, const struct config_option *option,
                      const char *value, struct err *err)
{
    char name[24];
    char quoted[48];
    unsigned n = 0;

    for (; choice_name(option->choices, n, name, sizeof(name)); n++) {
        if (strcmp(name, value) != 0)
            continue;
        if (option->type == OPTION_CHOICE)
            memcpy(text_at(config, option), &(unsigned){n}, sizeof(n));
        else
            return set_text(config, option, value, err);
        return 0;
    }
    return err_set(err, ERR_INVALID, 0, "\"%s\" is none of %s",
                   config_quote(value, quoted, sizeof(quoted)), option->choices);
}

static int set_bool(struct config *config, const struct config_option *option,
                    const char *value, struct err *err)
{
    char quoted[48];
    bool is_true = strcmp(value, "true") == 0;

    if (!is_true && strcmp(value, "false") != 0)
        return err_set(err, ERR_INVALID, 0, "\"%s\" is not a boolean: write true or false",
                       config_quote(value, quoted, sizeof(quoted)));
    memcpy(text_at(config, option), &is_true, sizeof(is_true));
    return 0;
}

static int set_number(struct config *config, const struct config_option *option,
                      const char *value, struct err *err)
{
    char quoted[48];
    int64_t number = 0;
    size_t digits = strspn(value, "0123456789");

    config_quote(value, quoted, sizeof(quoted));
    if (digits == 0 || value[digits] != '\0')
        return err_set(err, ERR_INVALID, 0, "\"%s\" is not a whole number", quoted);
    for (size_t i = 0; i < digits && number <= option->max; i++)
        number = number * 10 + (value[i] - '0');
    if (number < option->min || number > option->max)
        return err_set(err, ERR_INVALID, 0, "%s is out of range: %" PRId64 " to %" PRId64,
                       quoted, option->min, option->max);
    *number_at(config, option) = number;
    return 0;
}

static int set_duration(struct config *config, const struct config_option *option,
                        const char *value, struct err *err)
{
    char min[32];
    char max[32];
    char quoted[48];
    int64_t ns = 0;

    config_quote(value, quoted, sizeof(quoted));
    if (duration_parse(quoted, &ns, err) < 0)
        return -1;
    if (ns < option->min || ns > option->max)
        return err_set(err, ERR_INVALID, 0, "%s is out of range: %s to %s", quoted,
                       duration_format(option->min, min, sizeof(min)),
                       duration_format(option->max, max, sizeof(max)));
    *number_at(config, option) = ns;
    return 0;
}

static int set_value(struct config *config, const struct config_option *option,
                     const char *value, struct err *err)
{
    switch (option->type) {
    case OPTION_TEXT: return set_text(config, option, value, err);
    case OPTION_CHOICE:
    case OPTION_CHOICE_TEXT: return set_choice(config, option, value, err);
    case OPTION_BOOL: return set_bool(config, option, value, err);
    case OPTION_NUMBER: return set_number(config, option, value, err);
    case OPTION_DURATION: return set_duration(config, option, value, err);
    }
    return err_set(err, ERR_BUG, 0, "option of unknown type");
}

void config_defaults(struct config *ret)
{
    struct err err = {0};

    static_assert(sizeof(enum on_silence) == sizeof(unsigned), "set_choice writes an unsigned");
    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];

        if (option->fallback && set_value(ret, option, option->fallback, &err) < 0)
            abort(); // a default of our own table is refused by it
    }
}

static const struct config_option *find_option(const char *key)
{
    for (size_t i = 0; i < config_option_count; i++)
        if (strcmp(config_options[i].key, key) == 0)
            return &config_options[i];
    return NULL;
}

// The name of the section in the table that `key` is, or NULL.
static const char *find_section(const char *key)
{
    size_t len = strlen(key);

    for (size_t i = 0; i < config_option_count; i++)
        if (strncmp(config_options[i].key, key, len) == 0 && config_options[i].key[len] == '.')
            return config_options[i].key;
    return NULL;
}

static int refuse_unknown(const char *key, const struct config_place *place, struct err *err)
{
    const char *nearest = config_nearest(key);
    char quoted[64];

    config_quote(key, quoted, sizeof(quoted));
    if (nearest)
        return config_fault(err, place, "unknown key \"%s\": did you mean %s?", quoted,
                            nearest);
    return config_fault(
        err, place, "unknown key \"%s\": `metafence config options` lists all keys", quoted);
}

static int on_scalar(const struct config_scalar *scalar, void *arg, struct err *err)
{
    struct parse *parse = arg;
    const struct config_option *option = find_option(scalar->key);
    size_t index = 0;

    if (!option && find_section(scalar->key))
        return config_fault(err, &scalar->key_place,
                            "%s is a section: put its keys below it, indented", scalar->key);
    if (!option)
        return refuse_unknown(scalar->key, &scalar->key_place, err);
    index = (size_t)(option - config_options);
    if (parse->config->origin[index].line)
        return config_fault(err, &scalar->key_place,
                            "%s is given a second time (first in line %d): remove one",
                            scalar->key, parse->config->origin[index].line);
    parse->config->origin[index].line = scalar->key_place.line;
    parse->config->origin[index].source = CONFIG_FROM_FILE;
    if (scalar->is_plain && scalar->value[0] == '\0')
        return config_fault(err, &scalar->value_place,
                            "%s has no value: give one or remove the line", scalar->key);
    if (!scalar->is_plain && (option->type == OPTION_BOOL || option->type == OPTION_NUMBER))
        return config_fault(err, &scalar->value_place, "%s must be a %s: remove the quotes",
                            scalar->key, option->type == OPTION_BOOL ? "boolean" : "number");
    if (set_value(parse->config, option, scalar->value, err) < 0) {
        struct err cause = *err;

        return config_fault(err, &scalar->value_place, "%s: %s", scalar->key, cause.msg);
    }
    return 0;
}

static int on_section(const char *key, const struct config_place *place, void *arg,
                      struct err *err)
{
    struct parse *parse = arg;
    const char *name = find_section(key);
    size_t len = strlen(key);

    if (!name && find_option(key))
        return config_fault(err, place, "%s takes a single value, not a section", key);
    if (!name)
        return refuse_unknown(key, place, err);
    for (size_t i = 0; i < parse->section_count; i++)
        if (parse->sections[i].len == len && memcmp(parse->sections[i].name, name, len) == 0)
            return config_fault(err, place,
                                "section %s is given a second time (first in line %d): join "
                                "the two",
                                key, parse->sections[i].line);
    assert(parse->section_count < SECTIONS_MAX);
    parse->sections[parse->section_count].name = name;
    parse->sections[parse->section_count].len = len;
    parse->sections[parse->section_count].line = place->line;
    parse->section_count++;
    return 0;
}

// NULL: not set, or empty.
static const char *environment_of(const struct config_input *input,
                                  const struct config_option *option)
{
    const char *value =
        option->env && input->getenv ? input->getenv(option->env, input->getenv_arg) : NULL;

    return value && *value ? value : NULL;
}

static int apply_environment(const struct config_input *input, struct config *config,
                             struct err *err)
{
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        const char *value = environment_of(input, option);

        if (!value || (option->flags & OPTION_PER_POD))
            continue;
        if (set_value(config, option, value, err) < 0)
            return err_wrap(err, "environment variable %s (%s)", option->env, option->key);
        config->origin[i].source = CONFIG_FROM_ENV;
        config->origin[i].line = 0;
    }
    return 0;
}

static int set_override(const struct config_input *input, size_t index, struct config *config,
                        struct err *err)
{
    const struct config_option *option = &config_options[index];
    char annotation[CONFIG_ANNOTATION_SIZE];
    const char *value = environment_of(input, option);

    if (!value || !(option->flags & OPTION_PER_POD))
        return 0;
    if (set_value(config, option, value, err) < 0)
        return err_wrap(err, "annotation %s (%s, by environment variable %s)",
                        config_annotation(option, annotation, sizeof(annotation)), option->key,
                        option->env);
    config->origin[index].source = CONFIG_FROM_ENV;
    config->origin[index].line = 0;
    return 0;
}

// What the pod itself says counts as a whole or not at all: what is left of it without one
// that is wrong was meant by nobody. Without all of it the file holds, which is whole.
static void apply_overrides(const struct config_input *input, struct config *config)
{
    struct config tried = *config;
    struct err err = {0};
    int r = 0;

    for (size_t i = 0; i < config_option_count && r == 0; i++)
        r = set_override(input, i, &tried, &err);
    if (r == 0 && config_override_count(&tried) > 0 && core_config_check(&tried.core, &err) < 0)
        r = err_wrap(&err, "annotations of the pod: timing");
    if (r == 0)
        *config = tried;
    else
        (void)snprintf(config->override_error, sizeof(config->override_error), "%s", err.msg);
}

bool config_is_annotation(const char *key)
{
    char annotation[CONFIG_ANNOTATION_SIZE];

    for (size_t i = 0; i < config_option_count; i++)
        if ((config_options[i].flags & OPTION_PER_POD) &&
            strcmp(config_annotation(&config_options[i], annotation, sizeof(annotation)),
                   key) == 0)
            return true;
    return false;
}

size_t config_override_count(const struct config *config)
{
    size_t count = 0;

    for (size_t i = 0; i < config_option_count; i++)
        count += (config_options[i].flags & OPTION_PER_POD) &&
                 config->origin[i].source == CONFIG_FROM_ENV;
    return count;
}

static int check_required(const char *file, const struct config *config, struct err *err)
{
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        const char *text = (const char *)config + option->offset;

        if (!(option->flags & OPTION_REQUIRED) || *text)
            continue;
        if (option->env)
            return err_set(err, ERR_INVALID, 0,
                           "%s: %s is missing (%s): add it, or set the environment variable %s",
                           file, option->key, option->doc, option->env);
        return err_set(err, ERR_INVALID, 0, "%s: %s is missing (%s): add it", file, option->key,
                       option->doc);
    }
    return 0;
}

// A meta that waits for resets must not wait beyond its own lease, and no reset may be under
// way when the gate opens.
static int check_recovery(const struct config *config, struct err *err)
{
    const struct config_recovery *recovery = &config->recovery;
    int64_t start_ns = instant_add((struct instant){recovery->reset_before_start_ns},
                                   config->core.margin_ns + config->core.kill_budget_ns)
                           .ns;
    char a[32], b[32], c[32], d[32], e[32];

    if (recovery->mode != ORDER_ENFORCE)
        return 0;
    if (start_ns >= config->core.ttl_ns)
        return err_set(err, ERR_INVALID, 0,
                       "recovery.resetBeforeStart %s + margin %s + killBudget %s = %s is not "
                       "below ttl %s: shorten it, or raise lease and ttl above %s",
                       duration_format(recovery->reset_before_start_ns, a, sizeof(a)),
                       duration_format(config->core.margin_ns, b, sizeof(b)),
                       duration_format(config->core.kill_budget_ns, c, sizeof(c)),
                       duration_format(start_ns, d, sizeof(d)),
                       duration_format(config->core.ttl_ns, e, sizeof(e)), d);
    if (recovery->init_timeout_ns + NS_PER_SEC >= recovery->max_hold_ns)
        return err_set(err, ERR_INVALID, 0,
                       "recovery.initTimeout %s + 1s is not below recovery.maxHold %s: shorten "
                       "it, or hold for longer",
                       duration_format(recovery->init_timeout_ns, a, sizeof(a)),
                       duration_format(recovery->max_hold_ns, b, sizeof(b)));
    if (recovery->kill_nodes && recovery->policy == RECOVERY_POLICY_OPEN &&
        recovery->kill_after_ns + NS_PER_SEC >= recovery->max_hold_ns)
        return err_set(err, ERR_INVALID, 0,
                       "recovery.killAfter %s + 1s is not below recovery.maxHold %s: kill "
                       "sooner, or hold for longer",
                       duration_format(recovery->kill_after_ns, a, sizeof(a)),
                       duration_format(recovery->max_hold_ns, b, sizeof(b)));
    return 0;
}

int config_parse(const struct config_input *input, struct config *ret, struct err *err)
{
    struct parse parse = {.config = ret};
    struct config_yaml_visitor visitor = {on_scalar, on_section, &parse};
    struct err env_err = {0};
    bool is_file_good = false;

    config_defaults(ret);
    if (input->len > CONFIG_FILE_MAX)
        return err_set(err, ERR_INVALID, 0,
                       "%s: %zu bytes are too large for a configuration: "
                       "at most %d",
                       input->name, input->len, CONFIG_FILE_MAX);
    is_file_good = config_yaml_walk(input->name, input->bytes, input->len, &visitor, err) == 0;
    // Also behind a broken file, for the socket paths.
    if (apply_environment(input, ret, &env_err) < 0 && is_file_good) {
        *err = env_err;
        return -1;
    }
    if (!is_file_good)
        return -1;
    if (check_required(input->name, ret, err) < 0)
        return -1;
    if (core_config_check(&ret->core, err) < 0)
        return err_wrap(err, "%s: timing", input->name);
    if (check_recovery(ret, err) < 0)
        return err_wrap(err, "%s", input->name);
    apply_overrides(input, ret);
    return 0;
}
