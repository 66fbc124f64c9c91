/* SPDX-License-Identifier: Apache-2.0
 *
 * What the guard and the reconciler do to the rows of one worker endpoint, in the modes' enforce: terms and
 * tags, the deny-list with transactions in flight, tombstones, intents, the leader's memory against the
 * table. See README.md for what is and what is not in here.
 *
 * There is no time and no fence: a lease may end at any moment, a leader may not notice for ever, any
 * process may die at any moment. The database alone has to hold what is asserted.
 */

#ifndef TAGS
#define TAGS 3 /* incarnations in all */
#endif
#ifndef IDS
#define IDS 2 /* worker ids in all */
#endif
#ifndef RETURNS
#define RETURNS 1 /* times that the compute node comes back */
#endif
#ifndef CALLS
#define CALLS 2 /* DeleteWorkerNode calls in all */
#endif
#ifndef SLIPS
#define SLIPS 1 /* connections that slip in between "end the sessions" and "queue again", a takeover */
#endif
#define NONE 7

/* What an assertion is about, as its message shows it. */
bit superseded_write = 1, rightful_refused = 1, superseded_leads = 1, without_lock = 1;
bit live_row_removed = 1, unproven_removed = 1, memory_lacks_row = 1, memory_has_ghost = 1, our_call_aborts = 1;
bit removed_under_leader = 1;
#define BROKEN(what) assert(!what)

/* The election's row and the term. */
byte holder = NONE;    /* pod in the row */
byte owner = NONE;     /* pod and tag of the term */
byte owner_tag = NONE;
byte term = 0;
bool superseded[TAGS];
byte next_tag = 0;
bool unrecorded = false; /* the row was won, but the bookkeeping failed: no term yet */
bool was_unrecorded = false; /* counted: since then memory and table may differ */

/* A takeover that waits for writers: even stages are the gaps between two waits. */
byte taker = NONE;
byte stage = 0;
byte slips = 0;
#define QUEUED (taker != NONE && (stage == 1 || stage == 3 || stage == 5))

/* Meta processes. ALIVE ones never look at the row again: zombies. */
mtype = { DOWN, FOLLOWER, LOADING, LEADER };
mtype proc[2] = DOWN;
byte tag[2] = NONE;
byte mem[2];      /* ids that it knows for the endpoint, a bit each */
byte known[2];    /* ids that were in the table when it loaded, or that its tag inserted */
bool expired[2];  /* its checker has collected the endpoint, and will delete by host and port */
byte calls[2];    /* DeleteWorkerNode that have arrived and are not done */
byte calls_left = CALLS;

/* Their guarded transactions, one a pod. They outlive their process. */
mtype = { FREE, SNAPSHOT, JUDGED, LET_IN, WRITTEN };
mtype = { ADD, REUSE, ACTIVATE, DELETE };
mtype tx[2] = FREE;
mtype op[2] = ADD;
byte tx_tag[2] = NONE;
byte tx_id[2] = NONE;
bool tx_ours[2]; /* it serves a DeleteWorkerNode of ours */
bool let_by[2];  /* the verdict, where it is older than the lock */
byte tx_term[2]; /* term in the snapshot */

/* The table's row of the endpoint, and the compute node. */
byte row = NONE;
byte next_id = 0;
bool cn_alive = true;
byte cn_id = NONE; /* it has registered as */
byte cn_at = NONE; /* its registration is under way there */
byte returns_left = RETURNS;
byte proven = 0;   /* rows whose endpoint was proven gone */

/* The leader's agent: what it saw, what it has asked for. _same: the row was not written since. */
byte seen = NONE, seen_term = 0;
bool seen_same = false;
byte tomb = NONE, tomb_term = 0;
bool tomb_same = false, tomb_unlogged = false;
byte intents = 0, intent_same = 0, unknown = 0;
byte awaited = NONE; /* the id of the call whose answer it waits for */

#define BIT(id) (1 << (id))
#define SUPERSEDED(t) ((t) != NONE && superseded[t])
#define RIGHTFUL(s) (proc[s] != DOWN && holder == s && !SUPERSEDED(tag[s]))
#define RECORDED(s) (RIGHTFUL(s) && owner_tag == tag[s] && !unrecorded)
#define HOLDS_LOCK(s) (tx[s] == LET_IN || tx[s] == WRITTEN)
#define LOCKED (HOLDS_LOCK(0) || HOLDS_LOCK(1))
#define ROW_LOCKED (tx[0] == WRITTEN || tx[1] == WRITTEN)

/*
 * Liveness: at some moment the faults end, and from then on there is only what an honest world does, and
 * sessions whose clients are gone hang. Nothing of that goes on for ever, whatever the order; and where nothing
 * is left to do there is a leader, and all that was asked for in an earlier term is decided.
 */
#ifdef SETTLES
bit no_leader = 1, unsettled = 1;
bool calm = false, done = false;
#define FAULTS (!calm)
ltl settles { [] (calm -> <> done) }
#else
#define FAULTS true
#endif
#define LED (holder != NONE && RIGHTFUL(holder))
#define HANGS(s) (!FAULTS && (proc[s] == DOWN || tag[s] != tx_tag[s])) /* its client is gone, and nobody says so */

/* ---- transactions */

inline end_tx(s)
{
    if
    :: op[s] != DELETE && op[s] != ACTIVATE && cn_at == s -> cn_at = NONE
    :: else
    fi;
    tx[s] = FREE;
    op[s] = ADD;
    tx_tag[s] = NONE;
    tx_id[s] = NONE;
    tx_ours[s] = false;
    let_by[s] = false;
    tx_term[s] = 0
}

/* The call got an answer. It may be an earlier one's than the agent waits for: it can't tell. */
inline answer(s)
{
    if
    :: tx_ours[s] && awaited != NONE && tx_tag[s] == owner_tag ->
        if
#ifndef WITHDRAW_ANSWERED
        :: unknown & BIT(awaited) -> skip /* an earlier call may still be under way */
#endif
        :: else -> intents = intents & ~BIT(awaited)
        fi;
        awaited = NONE
    :: else
    fi
}

inline refuse(s)
{
    if
    :: RIGHTFUL(s) && tx_tag[s] == tag[s] -> BROKEN(rightful_refused)
    :: else
    fi;
    answer(s);
    end_tx(s)
}

#ifdef NO_DENY_LIST
#define PASSES(t) true
#elif defined(ALLOW_LIST)
#define PASSES(t) ((t) == owner_tag)
#else
#define PASSES(t) (!superseded[t])
#endif

/* Lock, then judge. */
inline judge(s)
{
    if
    :: PASSES(tx_tag[s]) -> let_in(s)
    :: else -> refuse(s)
    fi
}

inline let_in(s)
{
    tx[s] = LET_IN;
    if
    :: taker != NONE -> slips++
    :: else
    fi
}

inline begin(s, what, by_us)
{
    op[s] = what;
    tx_tag[s] = tag[s];
    tx_ours[s] = by_us;
#ifdef ISOLATION
    tx[s] = SNAPSHOT;
    let_by[s] = PASSES(tx_tag[s]);
    tx_term[s] = term
#elif defined(JUDGE_FIRST)
    tx[s] = JUDGED;
    let_by[s] = PASSES(tx_tag[s])
#else
    judge(s)
#endif
}

/* May this id be deleted, with the intents that there are? */
#ifdef NO_INTENT
#define INTENT_PASSES(id) true
#elif defined(INTENT_BY_ID)
#define INTENT_PASSES(id) (intents == 0 || (intents & BIT(id)))
#else
#define INTENT_PASSES(id) (intents == 0 || (intents & intent_same & BIT(id)))
#endif

inline statement(s)
{
    if
    :: op[s] == ADD && row == NONE && next_id < IDS -> tx_id[s] = next_id; next_id++; tx[s] = WRITTEN
    :: op[s] == ADD && row != NONE -> op[s] = REUSE; tx_id[s] = row; tx[s] = WRITTEN
    :: op[s] == ACTIVATE && row != NONE && row == cn_id -> tx_id[s] = row; tx[s] = WRITTEN
    :: op[s] == DELETE && row != NONE && INTENT_PASSES(row) -> tx_id[s] = row; tx[s] = WRITTEN
    :: else -> answer(s); end_tx(s) /* not found, or refused for an intent: an error, and no more */
    fi
}

/* Someone wrote the row: what was read before is not the row any more. */
inline written(id)
{
    if
    :: seen == id -> seen_same = false
    :: else
    fi;
    if
    :: tomb == id -> tomb_same = false; tomb_unlogged = false
    :: else
    fi;
    intent_same = intent_same & ~BIT(id)
}

inline commit(s)
{
    if
    :: SUPERSEDED(tx_tag[s]) -> BROKEN(superseded_write)
    :: else
    fi;
    if
    :: op[s] == ADD -> row = tx_id[s]; written(tx_id[s]);
        if
        :: proc[s] == LEADER && tag[s] == tx_tag[s] ->
            mem[s] = mem[s] | BIT(tx_id[s]);
            known[s] = known[s] | BIT(tx_id[s])
        :: else
        fi
    :: op[s] == DELETE ->
        if
        :: tx_ours[s] && cn_alive && cn_id == tx_id[s] -> BROKEN(live_row_removed)
        :: tx_ours[s] && !(proven & BIT(tx_id[s])) -> BROKEN(unproven_removed)
        :: else
        fi;
        row = NONE;
        written(tx_id[s]);
        if
        :: proc[s] == LEADER && tag[s] == tx_tag[s] && !(mem[s] & BIT(tx_id[s])) ->
            if
            :: tx_ours[s] -> BROKEN(our_call_aborts)
            :: else -> crash(s)
            fi
        :: else -> mem[s] = mem[s] & ~BIT(tx_id[s])
        fi
    :: op[s] == ACTIVATE -> written(tx_id[s])
    :: op[s] == REUSE ->
        /* Only worker_property is written. */
#ifndef NO_PROPERTY_VERSION
        written(tx_id[s])
#else
        skip
#endif
    fi;
    if
    :: (op[s] == ADD || op[s] == REUSE) && cn_at == s && cn_alive && proc[s] == LEADER && tag[s] == tx_tag[s] &&
       (mem[s] & BIT(tx_id[s])) -> cn_id = tx_id[s]
    :: else
    fi;
    answer(s);
    end_tx(s);
    check_memory()
}

/* ---- processes */

inline crash(s)
{
    proc[s] = DOWN;
    tag[s] = NONE;
    mem[s] = 0;
    known[s] = 0;
    expired[s] = false;
    calls[s] = 0
}

/* The rightful leader's memory is the table. */
inline check_memory()
{
    check_one(0);
    check_one(1)
}

inline check_one(s)
{
    if
    :: proc[s] == LEADER && RECORDED(s) && !was_unrecorded ->
        if
        :: row != NONE && !(mem[s] & BIT(row)) -> BROKEN(memory_lacks_row)
        :: mem[s] & ~(row == NONE -> 0 : BIT(row)) -> BROKEN(memory_has_ghost)
        :: else
        fi
    :: else
    fi
}

/* ---- terms */

inline apply_tombstone(is_first)
{
    if
    :: tomb != NONE ->
        if
#ifdef TOMBSTONE_WITHOUT_TERM
        :: row == tomb && !ROW_LOCKED &&
#else
        :: row == tomb && !ROW_LOCKED && (is_first) && tomb_term == term - 1 &&
#endif
#ifndef NO_ROW_VERSION
           tomb_same &&
#endif
#ifndef NO_MUTATION_LOG
           tomb_unlogged &&
#endif
           true ->
            if
            :: holder != NONE && proc[holder] == LEADER -> BROKEN(removed_under_leader)
            :: cn_alive && cn_id == row -> BROKEN(live_row_removed)
            :: !(proven & BIT(row)) -> BROKEN(unproven_removed)
            :: else
            fi;
            row = NONE;
            written(tomb)
        :: else
        fi;
#if defined(TOMBSTONE_WITHOUT_TERM) || defined(UNDECIDED)
        if
        :: row == tomb -> skip
        :: else -> tomb = NONE; tomb_term = 0; tomb_same = false; tomb_unlogged = false
        fi
#else
        tomb = NONE; /* decided once */
        tomb_term = 0;
        tomb_same = false;
        tomb_unlogged = false
#endif
    :: else
    fi
}

inline move_term(s, is_first)
{
    if
    :: owner_tag != NONE && owner_tag != tag[s] -> superseded[owner_tag] = true
    :: else
    fi;
    unrecorded = false;
    owner = s;
    owner_tag = (superseded[tag[s]] -> NONE : tag[s]);
    if
    :: term < TAGS + 2 -> term++
    :: else
    fi;
#ifndef NO_VOID
    intents = 0; /* of an older term: void */
    intent_same = 0;
#endif
    unknown = 0;
    awaited = NONE;
    apply_tombstone(is_first);
    taker = NONE;
    stage = 0;
    slips = 0
}

inline win(s)
{
    holder = s;
    if
    :: proc[s] == FOLLOWER -> proc[s] = LOADING
    :: else
    fi
}

inline end_writers()
{
    if
    :: HOLDS_LOCK(0) && (tx_tag[0] == owner_tag || superseded[tx_tag[0]]) -> end_tx(0)
    :: else
    fi;
    if
    :: HOLDS_LOCK(1) && (tx_tag[1] == owner_tag || superseded[tx_tag[1]]) -> end_tx(1)
    :: else
    fi
}

#ifdef NO_HOLD
#define MAY_HOLD(s) true
#else
#define MAY_HOLD(s) (!superseded[tag[s]])
#endif

/* A campaign that reaches the row when the lease is over, or is its own. */
inline campaign(s)
{
    if
    :: !MAY_HOLD(s) -> skip /* it gets OLD back */
    :: else ->
        if
        :: superseded[tag[s]] -> BROKEN(superseded_leads)
        :: else
        fi;
#ifdef NO_LOCK
        win(s);
        if
        :: owner_tag != tag[s] -> move_term(s, proc[s] == LOADING)
        :: else
        fi
#else
        if
        :: owner_tag == tag[s] -> win(s)
        :: owner_tag != tag[s] && (!LOCKED || owner_tag == NONE) ->
            win(s);
            move_term(s, proc[s] == LOADING)
        :: else -> taker = s; stage = 1
        fi
#endif
    fi;
    check_memory()
}

/* Bookkeeping that fails: the row is won, the term is not moved. The next renewal heals it. */
inline campaign_unrecorded(s)
{
    win(s);
    unrecorded = true;
    was_unrecorded = true
}

#ifdef NO_QUEUE /* a writer's shared request passes one that waits */
#define BARRED false
#else
#define BARRED QUEUED
#endif
#ifdef NO_QUEUE
#define GAP_OPEN true
#else
#define GAP_OPEN (taker == NONE || slips < SLIPS)
#endif

#define MAY_BEGIN(s) (proc[s] == LEADER && tx[s] == FREE && !BARRED && GAP_OPEN)

#define POD(s)                                                                                          \
    :: d_step { proc[s] == DOWN && next_tag < TAGS -> proc[s] = FOLLOWER; tag[s] = next_tag; next_tag++ } \
    :: d_step { proc[s] != DOWN && taker != s && (FAULTS || SUPERSEDED(tag[s])) -> crash(s) }           \
    :: d_step { proc[s] != DOWN && taker == NONE && !(holder == s && owner_tag == tag[s]) &&            \
                (FAULTS || (MAY_HOLD(s) && (holder == s || !LED))) -> campaign(s) }                     \
    :: d_step { proc[s] == LOADING -> \
                mem[s] = (row == NONE -> 0 : BIT(row)); known[s] = mem[s]; proc[s] = LEADER } \
    /* its checker: a jump of the clock expires whoever it likes */                                     \
    :: d_step { FAULTS && proc[s] == LEADER && mem[s] != 0 && !expired[s] -> expired[s] = true }        \
    :: d_step { expired[s] && MAY_BEGIN(s) -> expired[s] = false; begin(s, DELETE, false) }             \
    :: d_step { calls[s] > 0 && MAY_BEGIN(s) -> calls[s]--; begin(s, DELETE, true) }                    \
    /* the compute node */                                                                              \
    :: d_step { cn_alive && cn_id == NONE && cn_at == NONE && MAY_BEGIN(s) &&                           \
                (FAULTS || (RIGHTFUL(s) && (row != NONE || next_id < IDS))) -> cn_at = s; begin(s, ADD, false) } \
    :: d_step { FAULTS && cn_alive && cn_id != NONE && MAY_BEGIN(s) -> begin(s, ACTIVATE, false) }      \
    :: d_step { cn_alive && cn_id != NONE && proc[s] == LEADER && !(mem[s] & BIT(cn_id)) &&             \
                (FAULTS || RIGHTFUL(s)) -> cn_id = NONE }                                               \
    /* its transaction */                                                                               \
    :: d_step { tx[s] == JUDGED && !BARRED && GAP_OPEN ->                                               \
                if :: let_by[s] -> let_in(s) :: else -> refuse(s) fi }                             \
    :: d_step { tx[s] == SNAPSHOT && !BARRED && GAP_OPEN ->                                             \
                if :: STALE(s) -> answer(s); end_tx(s)                                                  \
                   :: else -> if :: let_by[s] -> let_in(s) :: else -> refuse(s) fi fi }            \
    :: d_step { tx[s] == LET_IN && !ROW_LOCKED && !HANGS(s) -> statement(s) }                           \
    :: d_step { tx[s] == WRITTEN && !HANGS(s) -> commit(s) }                                            \
    :: d_step { FAULTS && tx[s] != FREE -> end_tx(s) } /* its connection breaks */

#ifdef NO_TERM_SHARE
#define STALE(s) false
#else
#define STALE(s) (tx_term[s] != term) /* 40001 */
#endif

#ifdef NO_END_WRITERS
#define WAITS_FOR_EVER true
#else
#define WAITS_FOR_EVER false
#endif

active proctype world()
{
end:
    do
    POD(0)
    POD(1)

    /* a takeover that waits */
    :: d_step { QUEUED && !LOCKED -> win(taker); move_term(taker, proc[taker] == LOADING); check_memory() }
#ifdef END_ONCE
    :: d_step { stage == 1 && LOCKED -> end_writers(); stage = 2 }
    :: d_step { stage == 2 && LOCKED -> BROKEN(without_lock) }
    :: d_step { stage == 2 && !LOCKED -> win(taker); move_term(taker, proc[taker] == LOADING); check_memory() }
#else
    :: d_step { !WAITS_FOR_EVER && (stage == 1 || stage == 3) && LOCKED -> end_writers(); stage++ } /* its time is up */
    :: d_step { stage == 2 || stage == 4 -> stage++ }
    :: d_step { stage == 5 && LOCKED && !was_unrecorded -> BROKEN(without_lock) }
    /* Who led without a term is not known as a writer to be ended. */
    :: d_step { stage == 5 && LOCKED && was_unrecorded -> end_writers(); win(taker);
                move_term(taker, proc[taker] == LOADING) }
#endif

    /* the compute node */
    :: d_step { FAULTS && cn_alive -> cn_alive = false; cn_id = NONE; cn_at = NONE }
    :: d_step { FAULTS && !cn_alive && returns_left > 0 -> cn_alive = true; returns_left-- }

    /* the agent beside the verified leader: judges, buries, calls */
#define AGENT_OF(s)                                                                                     \
    :: d_step { FAULTS && proc[s] == LEADER && RECORDED(s) && !cn_alive && row != NONE && !ROW_LOCKED ->          \
                seen = row; seen_term = term; seen_same = true; proven = proven | BIT(row) }            \
    :: d_step { FAULTS && SEND && seen != NONE && IN_TERM && RECORDED(s) && proc[s] == LEADER && KNOWN(s) && calls_left > 0 && awaited == NONE -> \
                intents = intents | BIT(seen);                                                          \
                intent_same = (seen_same -> intent_same | BIT(seen) : intent_same & ~BIT(seen));        \
                awaited = seen; calls[s]++; calls_left-- }
#define IN_TERM (seen_term == term)
#ifdef CALL_UNKNOWN
#define KNOWN(s) true
#else
#define KNOWN(s) (known[s] & BIT(seen))
#endif
#ifdef TOMBSTONE_WITHOUT_TERM
#define MAY_BURY true
#else
#define MAY_BURY IN_TERM
#endif
#ifdef TOMBSTONES_ONLY
#define SEND false
#else
#define SEND true
#endif
    AGENT_OF(0)
    AGENT_OF(1)
#ifndef CALLS_ONLY
    :: d_step { FAULTS && seen != NONE && MAY_BURY -> tomb = seen; tomb_term = seen_term; tomb_same = seen_same;
                tomb_unlogged = true; seen = NONE; seen_term = 0; seen_same = false }
#endif
    :: d_step { awaited != NONE -> unknown = unknown | BIT(awaited); awaited = NONE } /* no answer in time */
#ifdef WITHDRAW_GONE
    :: d_step { intents != 0 && awaited == NONE && (row == NONE || !(intents & BIT(row))) -> intents = 0 }
#endif
#ifdef SETTLES
    :: d_step { !calm && (next_tag < TAGS || LED) -> calm = true }
    :: calm && timeout ->
       d_step { if
                :: !LED || proc[holder] != LEADER || !RECORDED(holder) -> BROKEN(no_leader)
                :: LED && (awaited != NONE || taker != NONE || LOCKED || (tomb != NONE && tomb_term != term) ||
                           intents & ~unknown) -> BROKEN(unsettled)
                :: else
                fi;
                done = true };
       break
#endif
#ifdef BOOK_FAILS
    :: d_step { !was_unrecorded && proc[0] != DOWN && taker == NONE && !superseded[tag[0]] -> campaign_unrecorded(0) }
    :: d_step { !was_unrecorded && proc[1] != DOWN && taker == NONE && !superseded[tag[1]] -> campaign_unrecorded(1) }
#endif
    od
}
