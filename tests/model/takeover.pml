/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a takeover ends, and how long it takes: close_term, end_writers and end_lockers in sql/takeover.sql against
 * sessions whose statements are judged at their end. Until then they have rows locked, and no lock of ours.
 *
 * A leads, then B, then C. A tick is 50 ms, after which nobody who was told to end is there; a statement may last for
 * ever. See README.md for what is and what is not in here.
 */

#ifndef BEGINS
#define BEGINS 2 /* transactions in all */
#endif
#define SESSIONS 2
#define SLIPS    1 /* writers that get in between "end the sessions" and "queue again", a takeover */
#define UNTAGGED 3 /* A, B and C are 0, 1 and 2 */
#define UNTIL    9 /* ticks that all of its waits may take */

/* What an assertion is about, as its message shows it. */
bit superseded_write = 1, without_lock = 1, left_behind = 1, wrongly_ended = 1, too_late = 1;
#define BROKEN(what) assert(!what)

bool enforce; /* else: observe */
byte owner = 0;
bool superseded[4];

/* ROWS: a statement under way, or who keeps rows. ENDING: at its end, waits for the writers' lock. IN: has it. */
mtype = { FREE, ROWS, ENDING, IN };
mtype state[SESSIONS] = FREE;
byte tag[SESSIONS];
bool may_end[SESSIONS]; /* the functions' owner may end it */
bool doomed[SESSIONS];  /* is told to end, and goes on until it notices */
bool early[SESSIONS];   /* had its rows at the takeover's last look */
bool escaped[SESSIONS]; /* had the lock when a takeover that had waited for it went on without */
byte begins_left = BEGINS;

/* The takeover to owner + 1. GAP: its wait is over; ENDED: who was in its way is told to end. */
mtype = { NO, QUEUED, GAP, ENDED, LOOK, MOVE };
mtype takeover = NO;
byte round = 0;
byte elapsed = 0, deadline = 0; /* of the present wait */
byte slips = 0;
bool locked = false, gave_up = false;
bool cancel_left = true, rollback_left = true;

#define MIN(a, b)   ((a) < (b) -> (a) : (b))
#define BARRED      (takeover == QUEUED || locked)
#define WRITERS     (state[0] == IN || state[1] == IN)
#define OF_OLD(s)   (tag[s] == owner || superseded[tag[s]])
#define HAS_ROWS(s) (state[s] == ROWS || state[s] == IN)

/* ---- sessions */

inline leave(s)
{
    state[s] = FREE;
    doomed[s] = false;
    early[s] = false;
    escaped[s] = false
}

inline judge(s)
{
    if
    :: superseded[tag[s]] && enforce -> leave(s) /* refused */
    :: else ->
        state[s] = IN;
        if
        :: takeover == ENDED -> slips++
        :: else
        fi
    fi
}

inline commit(s)
{
    if
    :: superseded[tag[s]] && enforce && !escaped[s] -> BROKEN(superseded_write)
    :: else
    fi;
    leave(s)
}

#define MAY_PASS (!BARRED && (takeover != ENDED || slips < SLIPS))

#define SESSION(s)                                                                            \
    :: d_step { state[s] == FREE && begins_left > 0 -> begins_left--; state[s] = ROWS }       \
    :: d_step { state[s] == ROWS && tag[s] == UNTAGGED -> leave(s) } /* neither judged nor locked */ \
    :: d_step { state[s] == ROWS && tag[s] != UNTAGGED && BARRED -> state[s] = ENDING }       \
    :: d_step { (state[s] == ROWS || state[s] == ENDING) && tag[s] != UNTAGGED && MAY_PASS -> judge(s) } \
    :: d_step { state[s] == IN -> commit(s) }                                                 \
    :: d_step { state[s] != FREE -> leave(s) } /* it rolls back, or is gone */

/* ---- the takeover */

inline end_session(s)
{
    if
    :: !enforce || tag[s] == UNTAGGED || !OF_OLD(s) -> BROKEN(wrongly_ended)
    :: else
    fi;
    if
    :: may_end[s] && state[s] != FREE -> doomed[s] = true
    :: else
    fi
}

inline end_writers()
{
    if
    :: tag[0] == owner || (state[0] == IN && superseded[tag[0]]) -> end_session(0)
    :: else
    fi;
    if
    :: tag[1] == owner || (state[1] == IN && superseded[tag[1]]) -> end_session(1)
    :: else
    fi
}

/* Who is at its end waits for the takeover, which is spared, if the takeover has the lock. */
#ifdef WAITERS_SPARED
#define HINDERS(s) HAS_ROWS(s)
#else
#define HINDERS(s) (HAS_ROWS(s) || (state[s] == ENDING && !locked))
#endif

#if defined(ANY_TAG)
#define IN_THE_WAY(s) HINDERS(s)
#elif defined(OLD_TAG_ALONE)
#define IN_THE_WAY(s) (HINDERS(s) && tag[s] == owner)
#else
#define IN_THE_WAY(s) (HINDERS(s) && OF_OLD(s))
#endif

#ifdef ONE_FAILURE_ENDS
#define GOES_ON(s) (may_end[s] || !IN_THE_WAY(s))
#else
#define GOES_ON(s) true
#endif

inline end_lockers()
{
    if
    :: IN_THE_WAY(0) -> end_session(0)
    :: else
    fi;
    if
    :: IN_THE_WAY(1) && GOES_ON(0) -> end_session(1)
    :: else
    fi
}

/* Whoever is in the way has this long to get out of it. */
inline look()
{
    takeover = LOOK;
#ifdef NO_UNTIL
    deadline = elapsed + 5
#else
    deadline = MIN(elapsed + 5, UNTIL)
#endif
}

inline seen()
{
    early[0] = (state[0] != FREE);
    early[1] = (state[1] != FREE);
    takeover = MOVE
}

#if defined(NO_END_LOCKERS)
#define LOOKS false
#elif defined(AFTER_ONE_WAIT)
#define LOOKS (enforce && locked && round == 0)
#elif defined(WITH_LOCK_ALONE)
#define LOOKS (enforce && locked)
#elif defined(OBSERVE_ENDS)
#define LOOKS true
#else
#define LOOKS enforce
#endif

inline waited()
{
    if
    :: LOOKS -> look()
    :: else -> seen()
    fi
}

#define CAN_BE_ENDED(s) (may_end[s] && OF_OLD(s))

/* A cancel costs a wait, and with it the time for who is told to end. */
inline wait_is_over()
{
    if
#ifdef END_ONCE
    :: enforce && round == 0 -> round++; takeover = GAP
#else
    :: enforce && round < 2 -> round++; takeover = GAP
#endif
    :: else ->
        if
        :: enforce && cancel_left && CAN_BE_ENDED(0) && CAN_BE_ENDED(1) -> BROKEN(without_lock)
        :: else
        fi;
        gave_up = true;
        waited()
    fi
}

inline over()
{
    takeover = NO;
    locked = false;
    gave_up = false;
    round = 0;
    elapsed = 0;
    deadline = 0;
    slips = 0
}

inline check(s)
{
    if
    :: enforce && early[s] && HAS_ROWS(s) && !doomed[s] && may_end[s] && OF_OLD(s) -> BROKEN(left_behind)
    :: else
    fi;
    escaped[s] = escaped[s] || (gave_up && state[s] == IN)
}

inline move()
{
    check(0);
    check(1);
    superseded[owner] = true;
    owner++;
    over()
}

active proctype world()
{
    if
    :: enforce = true
    :: enforce = false
    fi;
    do
    :: tag[0] < tag[1] -> tag[0]++
    :: tag[1] < UNTAGGED -> tag[1]++
    :: break
    od;
    if
    :: may_end[0] = true
    :: skip
    fi;
    if
    :: may_end[1] = true
    :: skip
    fi;
    do
    SESSION(0)
    SESSION(1)

#ifdef NO_LOCK
    :: d_step { takeover == NO && owner < 2 -> waited() }
#else
    :: d_step { takeover == NO && owner < 2 && !WRITERS -> locked = true; waited() }
#endif
    :: d_step { takeover == NO && owner < 2 && WRITERS -> takeover = QUEUED; deadline = 6 }
    :: d_step { takeover == QUEUED && !WRITERS -> locked = true; waited() }
    :: d_step { takeover == QUEUED && WRITERS && elapsed == deadline -> wait_is_over() }
    :: d_step { takeover == GAP -> end_writers(); takeover = ENDED }
    :: d_step { takeover == ENDED -> takeover = QUEUED; deadline = MIN(elapsed + (round == 1 -> 2 : 1), UNTIL) }
    :: d_step { takeover == LOOK && !IN_THE_WAY(0) && !IN_THE_WAY(1) -> seen() }
    :: d_step { takeover == LOOK && (IN_THE_WAY(0) || IN_THE_WAY(1)) && elapsed >= deadline -> end_lockers(); seen() }
    :: d_step { takeover == MOVE -> move() }

    :: d_step { (takeover == QUEUED || takeover == LOOK) && elapsed < deadline && !doomed[0] && !doomed[1] ->
                elapsed++;
                if
                :: elapsed > UNTIL -> BROKEN(too_late)
                :: else
                fi }

    /* A cancel strikes, once. */
    :: d_step { takeover == QUEUED && cancel_left -> cancel_left = false; wait_is_over() }
    :: d_step { takeover == LOOK && cancel_left -> cancel_left = false;
#ifdef CANCEL_ENDS_LOOK
                seen()
#else
                deadline = elapsed
#endif
              }
    /* Its client is gone, or it never commits. */
    :: d_step { takeover != NO && rollback_left -> rollback_left = false; over() }
    /* Anywhere else something can go on. */
    :: takeover == NO && owner == 2 && state[0] == FREE && state[1] == FREE && begins_left == 0 -> break
    od
}
