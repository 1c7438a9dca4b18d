package cmd

import (
	"cmp"
	"context"
	"time"

	"github.com/dlxctl/dlxctl/internal/desk"
)

// deskLook is what the commands have in common that show messages of one queue.
type deskLook struct {
	app    *app
	choose chooseFlags
}

// in calls do with the desk, and with the request for the chosen messages of the queue that an
// argument names.
func (k *deskLook) in(ctx context.Context, argument string, do func(*desk.Desk, desk.Request) error) error {
	d, closeDesk, err := k.app.openDesk(ctx, k.choose)
	if err != nil {
		return err
	}
	defer closeDesk()
	place, err := placeOf(d, argument)
	if err != nil {
		return err
	}
	r, err := k.choose.request(place)
	if err != nil {
		return err
	}
	return do(d, r)
}

// picked writes how many messages were looked at and match. The error says that the look did not
// reach all of them.
func (a *app) picked(r desk.Request, p desk.Picked) error {
	return cmp.Or(desk.WritePicked(a.stderr, p), r.Unreached(p.Looked, p.Shown))
}

// screen returns where tables of the desk are shown.
func (a *app) screen() desk.Screen { return desk.Screen{Width: a.width(), Now: time.Now()} }
