/* SPDX-License-Identifier: Apache-2.0
 *
 * What a session keeps of what it once looked up, with the value of a sequence, which shows also what is not
 * committed yet: that its tag is the owner's (judge and on_write in sql/guard.sql against move_term), and with
 * CHANGES that nothing is dropped and no recovery open (is_recovering and on_delta against whoever makes such).
 */

bit superseded_passed = 1, change_missed = 1;
#define BROKEN(what) assert(!what)

byte counter = 0;  /* the sequence */
byte kept = 0;     /* 0: nothing */

#ifndef CHANGES

#ifndef TAKEOVERS
#define TAKEOVERS 2 /* all but the last may be undone */
#endif
#ifndef STATEMENTS
#define STATEMENTS 4
#endif

bool exclusive = false, shared = false; /* the writers' lock */
bool superseded = false;                /* as committed */
bool xmax = false;                      /* of the row that is not superseded; stays when its writer is undone */

active proctype takeover()
{
    byte left = TAKEOVERS;
    bool locked;

    do
    :: left > 0 && !superseded ->
        left--;
        if
        :: d_step { !shared -> exclusive = true; locked = true }
#ifndef ALWAYS_LOCKED
        :: shared -> locked = false
#endif
        fi;
#ifdef COUNT_FIRST
        counter++;
        xmax = true;
#else
        xmax = true;
        counter++;
#endif
        if
        :: left > 0 -> skip /* undone */
        :: superseded = true
        fi;
        if
        :: locked -> exclusive = false
        :: else
        fi
    :: else -> break
    od
}

active proctype writer()
{
    byte left = STATEMENTS, value;
    bool seen, busy;

    do
    :: left > 0 ->
        left--;
#ifndef NO_LOCK
        d_step { !exclusive -> shared = true };
#endif
        if
        :: d_step { kept != 0 && kept == counter + 1 ->
                    if
                    :: superseded -> BROKEN(superseded_passed)
                    :: else
                    fi }
        :: else ->
#ifdef ROW_FIRST
            seen = superseded; /* its snapshot */
            busy = xmax;
            value = counter + 1;
#else
            value = counter + 1;
            seen = superseded;
            busy = xmax;
#endif
            if
            :: seen -> skip /* refused */
#ifdef NO_XMAX
            :: !seen -> kept = value
#else
            :: !seen && !busy -> kept = value
            :: !seen && busy
#endif
            fi
        fi;
        if
        :: shared = false /* its transaction ends */
        :: skip
        fi
    :: else -> break
    od;
    shared = false
}

#else /* CHANGES */

#define MAKERS 2
byte holders = 0;   /* of the lock of those that are under way */
bool there = false; /* as committed: something is open or pending */

active [MAKERS] proctype maker()
{
#ifdef COUNT_FIRST
    counter++;
    holders++;
#else
    holders++;
    counter++;
#endif
    if
    :: there = true
    :: skip /* undone */
    fi;
    holders--
}

active proctype leader()
{
    byte left = 4, value;
    bool seen, busy;

    do
    :: left > 0 ->
        left--;
        if
        :: d_step { kept != 0 && kept == counter + 1 ->
                    if
                    :: there -> BROKEN(change_missed)
                    :: else
                    fi }
        :: else ->
#ifdef LOOK_FIRST
            seen = there;
            value = counter + 1;
            busy = holders > 0;
#elif defined(TABLES_FIRST)
            value = counter + 1;
            seen = there; /* its snapshot */
            busy = holders > 0;
#else
            value = counter + 1;
            busy = holders > 0;
            seen = there;
#endif
            if
#ifdef NO_HOLDERS
            :: !seen -> kept = value
#else
            :: !seen && !busy -> kept = value
#endif
            :: else
            fi
        fi
    :: else -> break
    od
}

#endif
