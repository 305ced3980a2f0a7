package e2b

import (
	"encoding/base64"
	"strings"
	"time"
)

// cursor is a place in a list ordered by start and id: the last entry of a page. The text is opaque to clients.
type cursor struct {
	At        time.Time
	ID        string
	Ascending bool
}

const cursorAscending = "asc"

func (c cursor) String() string {
	text := c.At.UTC().Format(time.RFC3339Nano) + "__" + c.ID
	if c.Ascending {
		text += "__" + cursorAscending
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// parseCursor refuses garbage and a token from a list in the other order.
func parseCursor(token string, ascending bool) (cursor, error) {
	bad := badRequest("Invalid next token: send the X-Next-Token of the page before, with the same order and filters")
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(token, "="))
	if err != nil {
		return cursor{}, bad
	}
	parts := strings.Split(string(raw), "__")
	c := cursor{Ascending: len(parts) == 3 && parts[2] == cursorAscending}
	if len(parts) < 2 || len(parts) > 3 || (len(parts) == 3 && !c.Ascending) || c.Ascending != ascending || parts[1] == "" {
		return cursor{}, bad
	}
	if c.At, err = time.Parse(time.RFC3339Nano, parts[0]); err != nil {
		return cursor{}, bad
	}
	if year := c.At.UTC().Year(); year < 0 || year > 9999 {
		return cursor{}, bad // has no spelling in UTC
	}
	c.ID = parts[1]
	return c, nil
}

// after reports whether an entry comes after the cursor in its order.
func (c cursor) after(at time.Time, id string) bool {
	order := compareStart(at, id, c.At, c.ID)
	if c.Ascending {
		return order > 0
	}
	return order < 0
}

func compareStart(at time.Time, id string, otherAt time.Time, otherID string) int {
	if c := at.Compare(otherAt); c != 0 {
		return c
	}
	return strings.Compare(id, otherID)
}
