package servertest

import (
	"strings"

	"github.com/rshub/rshub/internal/access"
)

// Tokens returns the text of a tokens file with a new token for each of the rights, and the tokens.
// Rights that start with a name and a hyphen, such as "anyone - follow:*", have no token; their
// element is empty.
func Tokens(rights ...string) (file string, texts []string) {
	var lines strings.Builder
	for i, r := range rights {
		if name, what, ok := strings.Cut(r, " - "); ok {
			lines.WriteString(name + " - " + what + "\n")
			texts = append(texts, "")
			continue
		}
		text, digest := access.NewToken()
		texts = append(texts, text)
		lines.WriteString("caller" + string(rune('a'+i)) + " " + digest + " " + r + "\n")
	}
	return lines.String(), texts
}
