// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#define DEPTH_MAX 16 // deeper parts are printed in flow style, which is JSON

static void print_yaml(const cJSON *item, int depth, bool is_element)
{
    const cJSON *child = NULL;
    bool is_first = true;

    cJSON_ArrayForEach(child, item)
    {
        bool is_nested = (cJSON_IsObject(child) || cJSON_IsArray(child)) && child->child &&
                         depth < DEPTH_MAX;
        bool is_item = cJSON_IsArray(item);
        char *text = is_nested ? NULL : cJSON_PrintUnformatted(child);

        if (!is_element || !is_first)
            (void)printf("%*s", depth * 2, "");
        is_first = false;
        if (is_item)
            (void)fputs("- ", stdout);
        else
            (void)printf("%s:%s", child->string, is_nested ? "\n" : " ");
        if (is_nested)
            print_yaml(child, depth + 1, is_item);
        else
            (void)printf("%s\n", text ? text : "null");
        cJSON_free(text);
    }
}

void output_print(enum cli_output form, const cJSON *object)
{
    char *text = NULL;

    if (form == CLI_YAML) {
        print_yaml(object, 0, false);
        return;
    }
    text = cJSON_PrintUnformatted(object);
    (void)puts(text ? text : "{}");
    cJSON_free(text);
}

void output_text(enum cli_output form, const char *json)
{
    cJSON *object = form == CLI_YAML ? cJSON_Parse(json) : NULL;

    if (object)
        output_print(form, object);
    else
        (void)printf("%s%s", json, *json && json[strlen(json) - 1] == '\n' ? "" : "\n");
    cJSON_Delete(object);
}

bool output_is_colored(void)
{
    const char *none = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");

    return isatty(STDOUT_FILENO) && !(none && *none) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

const char *output_color(enum output_color color)
{
    if (!output_is_colored())
        return "";
    switch (color) {
    case OUTPUT_PLAIN: return "\033[0m";
    case OUTPUT_GREEN: return "\033[32m";
    case OUTPUT_YELLOW: return "\033[33m";
    case OUTPUT_RED: return "\033[31m";
    case OUTPUT_DIM: return "\033[2m";
    }
    return "";
}
