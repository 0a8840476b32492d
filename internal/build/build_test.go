package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestLine(t *testing.T) {
	const tagged, untagged = "v1.2.3", "v0.0.0-20261121190400-0123456789ab+dirty"
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-21T19:04:00Z"}}
	for _, test := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string // before what runs this test
	}{
		{"nothing is known", "", nil, "rshub v0.1.0-dev ("},
		{"a build without the history", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "rshub v0.1.0-dev ("},
		{"the linker says it", tagged, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "rshub v1.2.3 ("},
		{"a module from a proxy", "", &debug.BuildInfo{Main: debug.Module{Version: tagged}}, "rshub v1.2.3 ("},
		{"a tag", "", &debug.BuildInfo{Main: debug.Module{Version: tagged}, Settings: vcs},
			"rshub v1.2.3 (revision 0123456789abcdef, 2026-11-21T19:04:00Z, "},
		{"a working tree", "", &debug.BuildInfo{Main: debug.Module{Version: untagged}, Settings: append(vcs, debug.BuildSetting{Key: "vcs.modified", Value: "true"})},
			"rshub v0.1.0-dev+0123456789ab.dirty (revision 0123456789abcdef, 2026-11-21T19:04:00Z, modified, "},
		{"a commit behind a tag", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20261121190400-0123456789ab"}}, "rshub v0.1.0-dev+0123456789ab ("},
		{"a tag with words", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3-rc.1"}}, "rshub v1.2.3-rc.1 ("},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := fmt.Sprintf("%s%s, %s/%s)", test.want, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			if got := line("rshub", test.linked, test.info); got != want {
				t.Errorf("line() = %q, want %q", got, want)
			}
		})
	}
}
