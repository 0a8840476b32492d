package setting

import (
	"errors"
	"flag"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ParseFlags parses the flags of the command that fs is named after. Its errors describe the
// expected form of a value. It returns flag.ErrHelp for -h.
func ParseFlags(fs *flag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: "); ok {
		return fmt.Errorf("%s has no flag %s", fs.Name(), name)
	}
	m := invalidValue.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	value, name := m[1], m[2]
	form := m[3]
	if f := fs.Lookup(name); f != nil {
		if g, ok := f.Value.(flag.Getter); ok {
			switch g.Get().(type) {
			case time.Duration:
				form = "want a duration with a unit, such as 90s, 10m or 2h"
			case bool:
				form = "want true, false or no value"
			case int:
				form = "want a whole number"
			}
		}
	}
	return fmt.Errorf("-%s %s: %s", name, value, form)
}

var invalidValue = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-([\w-]+): (.*)$`)
