// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// refuse answers a connect that came in before our port could be closed with "cannot connect now":
// clients treat it like the refusal that they would have got.
func refuse(c *net.TCPConn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	be := pgproto3.NewBackend(c, c)
	for {
		msg, err := be.ReceiveStartupMessage()
		if err != nil {
			return
		}
		switch msg.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := c.Write([]byte{'N'}); err != nil {
				return
			}
			continue
		}
		be.Send(&pgproto3.ErrorResponse{
			Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P03",
			Message: "the database system is not there (pgproxy: target refused)",
		})
		_ = be.Flush()
		return
	}
}
