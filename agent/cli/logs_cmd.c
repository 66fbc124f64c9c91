// SPDX-License-Identifier: Apache-2.0
// logs pretty: the log of the agent or of metafence-run, for people.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cli/cli.h"
#include "agent/cli/logline.h"
#include "agent/cli/output.h"
#include "base/buf.h"

#define DATE_LEN  10 // "2026-11-30"
#define CLOCK_LEN 12 // "13:49:36.123"

static const char *color_of(enum logline_level level)
{
    switch (level) {
    case LOGLINE_DEBUG: return output_color(OUTPUT_DIM);
    case LOGLINE_INFO: return "";
    case LOGLINE_WARN: return output_color(OUTPUT_YELLOW);
    case LOGLINE_ERROR: return output_color(OUTPUT_RED);
    }
    return "";
}

static void put_line(const struct logline *line, struct buf *out)
{
    static const char *const names[] = {[LOGLINE_DEBUG] = "debug",
                                        [LOGLINE_INFO] = "info",
                                        [LOGLINE_WARN] = "warn",
                                        [LOGLINE_ERROR] = "error"};
    const char *color = color_of(line->level);
    const char *plain = output_color(OUTPUT_PLAIN);

    buf_append(out, line->prefix.data, line->prefix.len);
    buf_printf(out, "%.*s %.*s  %s%-5s%s  ", DATE_LEN, line->time.data, CLOCK_LEN,
               line->time.data + DATE_LEN + 1, color, names[line->level], *color ? plain : "");
    logline_put_message(&line->message, out);
    if (line->pairs.len == 0)
        return;
    buf_printf(out, "  %s", output_color(OUTPUT_DIM));
    buf_append(out, line->pairs.data, line->pairs.len);
    buf_puts(out, plain);
}

// One line of input, with its newline if it has one.
static void put_any(const char *text, size_t len, struct buf *out)
{
    size_t end = len > 0 && text[len - 1] == '\n' ? len - 1 : len;
    struct logline line;

    if (logline_parse(text, end, &line))
        put_line(&line, out);
    else
        buf_append(out, text, end);
    buf_append(out, text + end, len - end);
}

int cli_logs(const struct cli_args *args)
{
    struct buf out = {0};
    char *text = NULL;
    size_t room = 0;
    ssize_t len = 0;
    bool is_written = true;

    (void)args;
    while (is_written && (len = getline(&text, &room, stdin)) > 0) {
        buf_clear(&out);
        put_any(text, (size_t)len, &out);
        // Whoever follows a log wants each line when it comes.
        is_written =
            fwrite(buf_str(&out), 1, out.len, stdout) == out.len && fflush(stdout) == 0;
    }
    free(text);
    buf_done(&out);
    return is_written && !ferror(stdin) ? CLI_DONE : CLI_FAILED;
}
