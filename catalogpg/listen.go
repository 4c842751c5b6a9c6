package catalogpg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	reconnectFirst = 50 * time.Millisecond
	reconnectLast  = 5 * time.Second
)

// Run listens for DDL and commits, of other gateways too, and calls Config.Notify with them until ctx is over. It reconnects by itself.
func (c *Catalog) Run(ctx context.Context) error {
	wait := reconnectFirst
	for {
		heard, err := c.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.log.Warn("catalog notifications interrupted", "err", err)
		c.pool.Reset() // if the server ended, its connections are dead as well: a login must not be the one to find that out
		if heard {
			wait = reconnectFirst
		}
		if !pause(ctx, wait) {
			return nil
		}
		wait = min(2*wait, reconnectLast)
	}
}

// listen runs on one connection; heard says that it got as far as listening.
func (c *Catalog) listen(ctx context.Context) (heard bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, c.pool.Config().ConnConfig)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "listen sluice_ddl; listen sluice_commits"); err != nil {
		return false, err
	}
	c.notify("", "")
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, err
		}
		c.notify(n.Channel, n.Payload)
	}
}

func (c *Catalog) notify(channel, payload string) {
	if c.cfg.Notify != nil {
		c.cfg.Notify(channel, payload)
	}
}
