// SPDX-License-Identifier: Apache-2.0
#pragma once
// output: how commands print: JSON, YAML, color where a person looks.

#include <stdbool.h>

#include "agent/cli/cli.h"

struct cJSON;

// CLI_JSON: one line; CLI_YAML: block style, strings quoted as in JSON. For the two tables the
// command's own function is asked, not this.
void output_print(enum cli_output form, const struct cJSON *object);

// The same of a JSON text of our own making.
void output_text(enum cli_output form, const char *json);

enum output_color { OUTPUT_PLAIN = 0, OUTPUT_GREEN, OUTPUT_YELLOW, OUTPUT_RED, OUTPUT_DIM };

// Standard output is a terminal that shows color, and NO_COLOR is not set.
bool output_is_colored(void);
// The sequence that begins a color; "" when none is wanted. OUTPUT_PLAIN ends one.
const char *output_color(enum output_color color);
