package feed

import (
	"strings"

	"github.com/rshub/rshub/resourcesync"
)

// CheckSet returns nil if name is a valid name of a set: [a-z0-9][a-z0-9._-]{0,62}. Otherwise the
// error is a *resourcesync.Error with ErrInvalid.
func CheckSet(name string) error {
	ok := len(name) >= 1 && len(name) <= 63
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if ok {
		return nil
	}
	return resourcesync.Invalidf("invalid set name %q: want 1 to 63 of a-z, 0-9, dot, hyphen and underscore, starting with a letter or digit", resourcesync.Shorten(name))
}

const frameworkSuffix = ".framework"

// FrameworkSet returns the name of the set whose changes are the changes of the documents of the
// given set. Its topic is the Framework Notification channel of the given set.
func FrameworkSet(set string) string { return set + frameworkSuffix }

// IsFrameworkSet reports whether a set is the Framework Notification channel of another set.
func IsFrameworkSet(set string) bool {
	return len(set) > len(frameworkSuffix) && strings.HasSuffix(set, frameworkSuffix)
}

// TrimFramework returns the name of the set whose Framework Notification channel the given set is.
// It returns other names unchanged.
func TrimFramework(channel string) string { return strings.TrimSuffix(channel, frameworkSuffix) }

// Capability returns the capability of a set's notifications: resourcesync.ChangeNotification or
// resourcesync.FrameworkNotification.
func Capability(set string) string {
	if IsFrameworkSet(set) {
		return resourcesync.FrameworkNotification
	}
	return resourcesync.ChangeNotification
}
