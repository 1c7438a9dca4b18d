package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// joinErrors joins the errors of several queues. Where one of them does not wait, those that wait
// are text only, so that the joined error is not [ErrWaiting]: to run the command again is not
// enough.
func joinErrors(errs ...error) error {
	var waits []string
	hard := slices.DeleteFunc(slices.Clone(errs), func(err error) bool {
		isWait := errors.Is(err, ErrWaiting)
		if isWait {
			waits = append(waits, err.Error())
		}
		return isWait
	})
	err := errors.Join(hard...)
	if err == nil || len(waits) == 0 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%s\n%w", strings.Join(waits, "\n"), err)
}
