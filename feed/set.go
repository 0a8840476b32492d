package feed

import "github.com/rshub/rshub/resourcesync"

// CheckSet returns nil when name is a valid name of a set:
// [a-z0-9][a-z0-9._-]{0,62}. Otherwise the error is a *resourcesync.Error with
// ErrInvalid.
func CheckSet(name string) error {
	ok := len(name) >= 1 && len(name) <= 63
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if ok {
		return nil
	}
	return resourcesync.Invalid("%q cannot name a set: a name is 1 to 63 of a-z, 0-9, dot, hyphen and underscore, and begins with a letter or a digit", resourcesync.Shorten(name))
}
