package migrate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dlxctl/dlxctl/internal/migrate"
)

// A run in which a queue waits and another one fails does not only wait: to run it again is not
// enough. Each error keeps its text, and what fails can be told.
func TestAFailureIsMoreThanAWait(t *testing.T) {
	t.Parallel()
	waits := fmt.Errorf("%w: a has consumers", migrate.ErrWaiting)
	refused := fmt.Errorf("%w: b cannot be declared", migrate.ErrRefused)
	failed := errors.New("c: the connection is lost")
	for name, tc := range map[string]struct {
		errs           []error
		waits, refuses bool
	}{
		"none":                {errs: []error{nil, nil}},
		"two wait":            {errs: []error{waits, nil, waits}, waits: true},
		"one fails":           {errs: []error{waits, failed}},
		"one is refused":      {errs: []error{refused, waits}, refuses: true},
		"no queue waits":      {errs: []error{refused, failed}, refuses: true},
		"joined before":       {errs: []error{errors.Join(waits, waits), nil}, waits: true},
		"two that are joined": {errs: []error{migrate.JoinErrors(waits, failed), waits}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := migrate.JoinErrors(tc.errs...)
			if errors.Is(err, migrate.ErrWaiting) != tc.waits || errors.Is(err, migrate.ErrRefused) != tc.refuses {
				t.Errorf("it is %v", err)
			}
			for _, one := range tc.errs {
				if one != nil && !strings.Contains(err.Error(), one.Error()) {
					t.Errorf("%q lacks %q", err, one)
				}
			}
		})
	}
}
