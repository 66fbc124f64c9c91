// SPDX-License-Identifier: Apache-2.0
#include "agent/pg/answer.h"

size_t pg_answer_rows(const struct pg_reply *reply)
{
    return (size_t)PQntuples(reply->result);
}

void pg_answer_keep(const struct pg_reply *reply, struct pg_reply *ret)
{
    *ret = *reply;
    ret->owner = NULL;
    *reply->owner = NULL;
}

void pg_answer_drop(struct pg_reply *kept)
{
    PQclear((PGresult *)(uintptr_t)kept->result); // ours since it was kept
    *kept = (struct pg_reply){0};
}

int pg_answer_row(const struct pg_reply *reply, size_t row, const char **ret_fields,
                  size_t count, struct err *err)
{
    const PGresult *result = reply->result;

    if ((size_t)PQnfields(result) != count)
        return err_set(err, ERR_INVALID, 0, "answer has %d columns, expected %zu",
                       PQnfields(result), count);
    for (int i = 0; i < (int)count; i++)
        ret_fields[i] =
            PQgetisnull(result, (int)row, i) ? NULL : PQgetvalue(result, (int)row, i);
    return 0;
}
