package text

import (
	"fmt"
	"strings"
)

// Some returns the first five names of a list, and counts the others.
func Some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
