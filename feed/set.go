package feed

import (
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

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

const framework = ".framework"

// Framework returns the name of the set whose changes are those of the documents of a set: its
// topic is the Framework Notification channel of the set.
func Framework(set string) string { return set + framework }

// IsFramework reports whether a set is the Framework Notification channel of another one.
func IsFramework(set string) bool {
	return len(set) > len(framework) && strings.HasSuffix(set, framework)
}

// FrameworkOf returns the set whose channel a set is. IsFramework must be true.
func FrameworkOf(channel string) string { return strings.TrimSuffix(channel, framework) }

// Capability returns what the notifications of a set are: resourcesync.ChangeNotification, or
// resourcesync.FrameworkNotification.
func Capability(set string) string {
	if IsFramework(set) {
		return resourcesync.FrameworkNotification
	}
	return resourcesync.ChangeNotification
}
