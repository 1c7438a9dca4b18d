// Package wait waits.
package wait

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. Then it returns the error of ctx.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
