// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Conn is one session. It speaks the extended protocol itself, because the semantics that matter
// (a ping is a bare Sync; a statement that was sent is never cancelled) are not those of pgconn.
type Conn struct {
	nc        net.Conn
	fe        *pgproto3.Frontend
	created   time.Time
	idleSince time.Time
}

// Result is what a statement returned: the rows' raw column values (nil = NULL) and the command tag.
type Result struct {
	Rows [][][]byte
	Tag  string
}

// Statement is one statement with text parameters. Binary lists the result formats (1 = binary);
// empty means text.
type Statement struct {
	SQL    string
	Args   []string
	Format []int16
}

func dial(ctx context.Context, cfg *pgconn.Config) (*Conn, error) {
	pc, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	hj, err := pc.Hijack()
	if err != nil {
		return nil, errors.Join(err, pc.Close(ctx))
	}
	// Whatever deadline the connect left behind must not hit a later statement.
	if err := hj.Conn.SetDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, hj.Conn.Close())
	}
	now := time.Now()
	return &Conn{nc: hj.Conn, fe: hj.Frontend, created: now, idleSince: now}, nil
}

// Exec sends one statement and waits for its end, however long that takes: nothing but the peer or
// the kernel ends the wait. The error is a *pgconn.PgError if the server gave one.
func (c *Conn) Exec(st Statement) (Result, error) {
	params := make([][]byte, len(st.Args))
	for i, a := range st.Args {
		params[i] = []byte(a)
	}
	c.fe.SendParse(&pgproto3.Parse{Query: st.SQL})
	c.fe.SendBind(&pgproto3.Bind{Parameters: params, ResultFormatCodes: st.Format})
	c.fe.SendExecute(&pgproto3.Execute{})
	c.fe.SendSync(&pgproto3.Sync{})
	if err := c.fe.Flush(); err != nil {
		return Result{}, err
	}
	return c.untilReady()
}

// untilReady reads up to ReadyForQuery.
func (c *Conn) untilReady() (Result, error) {
	var res Result
	var serverErr error
	for {
		msg, err := c.fe.Receive()
		if err != nil {
			if serverErr != nil { // FATAL, then the server closed
				return res, serverErr
			}
			return res, err
		}
		switch m := msg.(type) {
		case *pgproto3.DataRow:
			res.Rows = append(res.Rows, copyRow(m.Values))
		case *pgproto3.CommandComplete:
			res.Tag = string(m.CommandTag)
		case *pgproto3.ErrorResponse:
			serverErr = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return res, serverErr
		}
	}
}

func copyRow(values [][]byte) [][]byte {
	row := make([][]byte, len(values))
	for i, v := range values {
		if v != nil {
			row[i] = append([]byte{}, v...)
		}
	}
	return row
}

// ping is a bare Sync. It ends with the context (the session is then unusable) or with the peer.
func (c *Conn) ping(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetDeadline(time.Unix(1, 0))
	})
	defer stop()
	c.fe.SendSync(&pgproto3.Sync{})
	if err := c.fe.Flush(); err != nil {
		return err
	}
	_, err := c.untilReady()
	return err
}

// closeHard closes the socket without a word to the server.
func (c *Conn) closeHard() { _ = c.nc.Close() }

// closeNice says Terminate first, but does not wait for anything.
func (c *Conn) closeNice() {
	_ = c.nc.SetDeadline(time.Now().Add(time.Second))
	c.fe.Send(&pgproto3.Terminate{})
	_ = c.fe.Flush()
	_ = c.nc.Close()
}
