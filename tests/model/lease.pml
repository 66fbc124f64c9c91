/* SPDX-License-Identifier: Apache-2.0
 *
 * Two metas, their agents, their metafence-run and the election row, in ticks of discrete time. A pod's
 * index is its advertise address. See README.md for what is and what is not in here.
 *
 * No fault has a variable of its own unless a property needs it: an action that is enabled may stay
 * undone for as long as the search likes, and that is what a stalled link, a frozen process or a silent
 * database look like. Only what *must* happen in time blocks the clock: a kill that was decided.
 *
 * The row is expired when its age is greater than TTL, as in `last_heartbeat < NOW() - ttl`.
 */

#ifndef TTL
#define TTL 5
#endif
#ifndef MARGIN
#define MARGIN 1 /* the database's clock may step forward by this much between two renewals */
#endif
#define KB 1     /* a kill that was decided takes at most this long */

/* Two tags a pod, used in turn: restarts have no bound, and a tag comes back only when nothing speaks of
 * its last bearer any more. */
#define NONE 4
#define TAG(i) ((i) * 2 + inc[i])

#ifdef NO_MARGIN
#define LEFT(age) (TTL - (age) - KB)
#elif defined(NO_KILL_BUDGET)
#define LEFT(age) (TTL - (age) - MARGIN)
#elif defined(NO_AGE)
#define LEFT(age) (TTL - MARGIN - KB)
#else
#define LEFT(age) (TTL - (age) - MARGIN - KB)
#endif
#define NOT_NEGATIVE(x) ((x) > 0 -> (x) : 0)

mtype = { DOWN, FOLLOWER, ACTING, ABSENT, OURS, OTHER, EXPIRED, SUPERSEDED };

/* The row, the term that the trigger keeps, and what each tag has been. */
byte owner = NONE, row_age = 0;
byte owner_tag = NONE;
bool superseded[4]; /* its term ended */
byte steps = 0; /* of the database's clock since the last renewal */

/* A meta process. ACTING: elected, works on metadata; for ever, unless it exits or is killed. */
mtype proc[2] = FOLLOWER;
bit inc[2];
bool is_leader[2]; /* what its election loop believes; an error resets it: a zombie */
bool overtaken[2];   /* it was overtaken in a state that is named "not covered" */

/* The agent, whose death looks like answers that never come. A read that is under way: what it saw, and what its evidence is worth, counting down. */
mtype seen[2];
byte worth[2];
bool before_engaged[2]; /* sent before the incarnation was engaged */
bool seen_by_mark[2];   /* the read showed that our tag is superseded */

/* metafence-run. */
bool armed[2];
bool has_deadline[2];
byte left[2];      /* of the deadline */
byte follower_left[2]; /* of what the last read that named another is worth */
bool latch[2];     /* superseded, for the incarnation */
bool must_die[2];
byte kill_left[2];
bool lease_hold[2]; /* fenced by the clock: healthy peers go first */
bool paused = false;
byte pauses = 0;

#ifdef WRITES
byte writing[2] = NONE; /* tag of a guarded statement that was let in and has not committed */
#endif
#ifdef IN_FLIGHT
byte campaign_sent[2] = NONE; /* tag of a campaign that waits inside Postgres */
#endif
#ifdef FAIR
bool up[2] = true; /* link of the pod to the database */
byte fine[2];      /* whole ticks since it came up, to 3 */
bool renewed[2];
bool answered[2];
byte flaps = 0;
#endif

#ifdef NO_DEADLINE
#define DEADLINE_COUNTS false
#else
#define DEADLINE_COUNTS true
#endif
#ifdef ENFORCE /* the guard keeps a superseded tag from holding the lease */
#define MAY_HOLD(t) (!superseded[t])
#else
#define MAY_HOLD(t) true
#endif
#define paused_for(i) (paused && i == 0)
#define COVERED(i) (armed[i] && !paused_for(i))
#define EXPIRED_ROW (row_age > TTL)
#ifdef FAIR
#define UP(i) up[i]
#else
#define UP(i) true
#endif

inline decide_kill(i, why)
{
    /* P2: every kill has a true reason. */
    if
    :: why == SUPERSEDED -> assert(superseded[TAG(i)] || overtaken[i])
    :: why == EXPIRED -> lease_hold[i] = true;
#ifdef FAIR
        assert(!(fine[i] == 3 && owner == i && owner_tag == TAG(i)));
#endif
    fi;
    must_die[i] = true;
    kill_left[i] = KB;
}

inline forget_read(i)
{
    seen[i] = 0;
    worth[i] = 0;
    before_engaged[i] = false;
    seen_by_mark[i] = false
}

inline end_process(i)
{
    proc[i] = DOWN;
    is_leader[i] = false;
    must_die[i] = false;
    kill_left[i] = 0;
    has_deadline[i] = false;
    left[i] = 0;
    latch[i] = false;
    overtaken[i] = false;
    forget_read(i)
}

inline deadline_due(i)
{
    if
    :: DEADLINE_COUNTS && has_deadline[i] && left[i] == 0 && proc[i] == ACTING && COVERED(i) && !must_die[i] ->
        decide_kill(i, EXPIRED)
    :: else
    fi
}

inline engage(i)
{
    proc[i] = ACTING;
    before_engaged[i] = (seen[i] != 0);
#ifndef NO_LOCAL_DEADLINE
    if
    :: armed[i] && !has_deadline[i] ->
        /* our lease cannot be older than the read that named another */
        has_deadline[i] = true;
        left[i] = follower_left[i];
        if
        :: left[i] == 0 && COVERED(i) -> decide_kill(i, EXPIRED)
        :: else
        fi
    :: else
    fi
#endif
}

/* The row got another id, or a younger tag of the same: the term moves. A superseded tag that wins the row
 * again gets no term: the term is nobody's then. */
inline move_term(tag)
{
    if
    :: owner_tag != NONE -> superseded[owner_tag] = true
    :: else
    fi;
    if
#ifndef NO_SUPERSEDED_MARK
    :: superseded[tag] -> owner_tag = NONE
#endif
    :: else ->
        assert(!superseded[tag]); /* a superseded tag never owns again */
        owner_tag = tag
    fi;
#ifdef WRITES
#ifndef NO_ADVISORY_LOCK
    /* the takeover waits for writers, then ends their sessions */
    if
    :: writing[0] != NONE && superseded[writing[0]] -> writing[0] = NONE
    :: else
    fi;
    if
    :: writing[1] != NONE && superseded[writing[1]] -> writing[1] = NONE
    :: else
    fi
#endif
#endif
}

inline overtake(j)
{
    if
    :: proc[j] == ACTING ->
        if
        :: COVERED(j) && !overtaken[j] -> assert(false) /* P1 */
        :: else -> overtaken[j] = true
        fi
    :: else
    fi
}

/* The statement itself: tag `t` of pod i reaches the row. */
inline campaign_row(i, t)
{
    if
    :: MAY_HOLD(t) && (owner == NONE || EXPIRED_ROW || owner == i) ->
        if
        :: owner != i ->
            overtake(1 - i);
            owner = i;
            move_term(t)
        :: owner == i && t != owner_tag && t == TAG(i) && !superseded[t] ->
            move_term(t)
        :: else
        fi;
        row_age = 0;
        steps = 0
    :: else
    fi
}

inline campaign_answer(i)
{
    if
    :: owner == i ->
        is_leader[i] = true;
        if
        :: proc[i] == FOLLOWER -> engage(i)
        :: else
        fi
    :: owner != i && is_leader[i] -> end_process(i) /* "leader has been changed": exit 0 */
    :: else
    fi
}

inline read_row(i)
{
    seen_by_mark[i] = superseded[TAG(i)];
    before_engaged[i] = false;
    if
    :: owner == NONE -> seen[i] = ABSENT; worth[i] = NOT_NEGATIVE(LEFT(0))
    :: owner == i -> seen[i] = OURS; worth[i] = NOT_NEGATIVE(LEFT(row_age))
    :: else -> seen[i] = OTHER; worth[i] = NOT_NEGATIVE(LEFT(0))
    fi
}

inline verdict(i)
{
#ifndef NO_SUPERSEDED_LATCH
#ifdef NO_ENGAGED_ORDER
    if
    :: seen[i] == OTHER -> latch[i] = true
    :: else
    fi;
#else
    if
    :: seen[i] == OTHER && !before_engaged[i] -> latch[i] = true
    :: else
    fi;
#endif
    if
    :: seen_by_mark[i] -> latch[i] = true
    :: else
    fi;
    if
    :: latch[i] && !paused_for(i) && !must_die[i] -> decide_kill(i, SUPERSEDED)
    :: else
    fi;
#else
    if
    :: seen[i] == OTHER && !before_engaged[i] && !paused_for(i) && !must_die[i] ->
        decide_kill(i, SUPERSEDED)
    :: else
    fi;
#endif
    if
    :: seen[i] == OURS && !latch[i] && worth[i] > 0 && !must_die[i] ->
        /* no permit for a superseded incarnation, whoever is in the row */
        assert(!superseded[TAG(i)]);
#ifdef PERMIT_ONCE
        if
        :: !has_deadline[i] -> left[i] = worth[i]
        :: else
        fi;
#else
        if
        :: worth[i] > left[i] || !has_deadline[i] -> left[i] = worth[i]
        :: else
        fi;
#endif
        has_deadline[i] = true
    :: !has_deadline[i] && !must_die[i] && !latch[i] && (seen[i] != OURS || worth[i] == 0) ->
        /* The answer that arms us was sent before the process was engaged, so that it shows no row of
         * ours yet; or it comes too late: not covered until now, and over already. */
        has_deadline[i] = true;
        left[i] = worth[i];
        if
        :: worth[i] == 0 -> overtaken[i] = true
        :: else
        fi;
        deadline_due(i)
    :: else
    fi
}

inline take_answer(i)
{
    armed[i] = true;
    lease_hold[i] = false;
#ifdef FAIR
    answered[i] = true;
#endif
    if
    :: proc[i] == ACTING -> verdict(i)
    :: else
    fi;
    if
    :: proc[i] != ACTING && worth[i] > follower_left[i] -> follower_left[i] = worth[i] /* a later lease is not older than this row */
    :: else
    fi;
    forget_read(i)
}

#ifdef NO_START_GATE
#define GATE(i) ((proc[i] == DOWN || must_die[i]) && !lease_hold[i])
#elif defined(NO_LEASE_GATE)
#define GATE(i) (proc[i] == DOWN)
#else
#define GATE(i) (proc[i] == DOWN && (!lease_hold[i] || EXPIRED_ROW))
#endif

inline start_process(i)
{
    /* the start gate: never beside a living predecessor, never back into a lease lost by silence */
    assert(proc[i] == DOWN);
    assert(!(lease_hold[i] && owner == i && !EXPIRED_ROW));
    if
    :: lease_hold[i] -> armed[i] = false /* after a fence by the clock: unarmed until an answer comes */
    :: else
    fi;
    seen_by_mark[i] = false; /* a read under way spoke of the predecessor's tag */
    inc[i] = 1 - inc[i];
    superseded[TAG(i)] = false;
    if
    :: owner_tag == TAG(i) -> owner_tag = NONE
    :: else
    fi;
    proc[i] = FOLLOWER;
    follower_left[i] = NOT_NEGATIVE(LEFT(0)) /* a lease of its own is not older than itself */
}

inline count_down(i)
{
    if
    :: worth[i] > 0 -> 
#ifndef NO_SENT_TIME
        worth[i]--
#else
        skip
#endif
    :: else
    fi;
    if
    :: follower_left[i] > 0 -> follower_left[i]--
    :: else
    fi;
    if
    :: must_die[i] -> kill_left[i]--
    :: else
    fi;
    if
    :: has_deadline[i] && left[i] > 0 -> left[i]--
    :: else
    fi
}

#define KILL_IN_TIME(i) (!(must_die[i] && kill_left[i] == 0))
#ifdef BARE_PEER
#define PEER 1
#else
#define PEER 2
#endif
#ifdef FAIR
/* On a sound link each meta renews and each agent reads in each tick. */
#define TURN_DONE(i) (i == PEER || !up[i] || (answered[i] && seen[i] == 0 && (renewed[i] || proc[i] == DOWN)))
#else
#define TURN_DONE(i) true
#endif

inline tick()
{
    if
    :: row_age <= TTL && owner != NONE -> row_age++
    :: else
    fi;
    count_down(0);
    count_down(1);
#ifdef FAIR
    fine[0] = (up[0] -> (fine[0] < 3 -> fine[0] + 1 : 3) : 0);
    fine[1] = (up[1] -> (fine[1] < 3 -> fine[1] + 1 : 3) : 0);
    renewed[0] = false;
    renewed[1] = false;
    answered[0] = false;
    answered[1] = false;
#endif
    deadline_due(0);
    deadline_due(1)
}

#ifdef FAIR
#define RENEWED(i) renewed[i] = true
#else
#define RENEWED(i) skip
#endif

#define POD(i)                                                                                    \
    :: d_step { UP(i) && proc[i] != DOWN -> campaign_row(i, TAG(i)); campaign_answer(i); RENEWED(i) } \
    :: d_step { is_leader[i] && !CALM -> is_leader[i] = false }                                    \
    :: d_step { proc[i] != DOWN && !must_die[i] && !CALM -> end_process(i) }

#ifdef FAIR
#define CALM true
#define LINK(i)                                                                                    \
    :: d_step { up[i] && flaps < 2 -> up[i] = false; fine[i] = 0; forget_read(i); flaps++ }                        \
    :: d_step { !up[i] -> up[i] = true }
#else
#define CALM false
#endif

#define PROTECTED(i)                                                                               \
    :: d_step { must_die[i] -> end_process(i) }                                                    \
    :: d_step { GATE(i) && TAG_FREE(i) -> start_process(i) }

#define MAY_READ(i) (UP(i) && seen[i] == 0)

#define NEXT_TAG(i) ((i) * 2 + 1 - inc[i])
#if defined(WRITES)
#define TAG_FREE(i) (writing[i] != NEXT_TAG(i))
#elif defined(IN_FLIGHT)
#define TAG_FREE(i) (campaign_sent[i] != NEXT_TAG(i))
#else
#define TAG_FREE(i) true
#endif

#ifdef WRITES
#ifdef NO_DENY_LIST
#define ALLOWED(i) true
#else
#define ALLOWED(i) (!superseded[TAG(i)])
#endif
#define WRITER(i)                                                                                  \
    :: d_step { proc[i] == ACTING && writing[i] == NONE && ALLOWED(i) -> writing[i] = TAG(i) }     \
    :: d_step { writing[i] != NONE -> assert(!superseded[writing[i]]); writing[i] = NONE }
#endif

#ifdef IN_FLIGHT
#define SENT(i)                                                                                    \
    :: d_step { proc[i] != DOWN && campaign_sent[i] == NONE -> campaign_sent[i] = TAG(i) }         \
    :: d_step { campaign_sent[i] != NONE -> campaign_row(i, campaign_sent[i]);                     \
                if :: proc[i] != DOWN && campaign_sent[i] == TAG(i) -> campaign_answer(i)          \
                   :: else fi; campaign_sent[i] = NONE }
#endif

active proctype world()
{
end:
    do
    POD(0)
    POD(1)
    PROTECTED(0)
    /* Pod 0's answers may be late or lost; pod 1's come at once or never, to keep the search small. The
     * pods are alike, so that what holds for one holds for the other. */
    :: d_step { MAY_READ(0) -> read_row(0) }
    :: d_step { seen[0] != 0 -> take_answer(0) }
    :: d_step { seen[0] != 0 && !CALM -> forget_read(0) } /* FAIR: only a cut loses an answer */
#ifdef BARE_PEER
    :: d_step { proc[1] == DOWN && TAG_FREE(1) -> start_process(1) }
#else
    :: d_step { MAY_READ(1) -> read_row(1); take_answer(1) }
    PROTECTED(1)
#endif
#ifdef WRITES
    WRITER(0)
    WRITER(1)
#endif
#ifdef IN_FLIGHT
    SENT(0)
#endif
#ifdef FAIR
    LINK(0)
    LINK(1)
#endif
#ifdef PAUSE
    :: d_step { !paused && pauses < 1 -> paused = true; pauses++ }
    :: d_step { paused -> paused = false;
                if
                :: has_deadline[0] && left[0] == 0 -> overtaken[0] = true /* its lease ended in the pause */
                :: else
                fi;
                deadline_due(0) }
#endif
    /* the database's clock steps forward, within the margin */
    :: d_step { owner != NONE && row_age <= TTL && steps < MARGIN -> row_age++; steps++ }
    :: d_step { KILL_IN_TIME(0) && KILL_IN_TIME(1) && TURN_DONE(0) && TURN_DONE(1) -> tick() }
    od
}
