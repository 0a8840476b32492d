package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rshub/rshub/resourcesync"
)

// wantRead checks that reading the output of write returns v, and that reading a part of it fails.
func wantRead[T any](t *testing.T, v T, read func(io.Reader) (T, error), write func(*T, []byte) []byte) {
	t.Helper()
	text := write(&v, nil)
	got, err := read(bytes.NewReader(text))
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("read(%s) = %+v, %v\nwant %+v", text, got, err, v)
	}
	broken := errors.New("broken")
	if _, err := read(io.MultiReader(bytes.NewReader(text[:len(text)/2]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("from a broken reader: %v", err)
	}
	for i := range text {
		if _, err := read(bytes.NewReader(text[:i])); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Fatalf("%s: %v", text[:i], err)
		}
	}
}

func TestReadQuestion(t *testing.T) {
	const digest = `"digest":"00000000000000000000000000000000"`
	const head = `{"at":"1-1","by":"content","ranges":[`
	one := func(members string) string { return head + "{" + members + "}]}" }
	if _, err := ReadQuestion(strings.NewReader(" " + one(`"to":null,"count":1,`+digest) + "\n")); err != nil {
		t.Error(err)
	}
	for _, test := range []struct{ text, want string }{
		{``, "is empty"},
		{`{`, "ends early"},
		{`[]`, "JSON value: got an array, want an object"},
		{`{}`, "at is missing"},
		{`{"at":"1-1"}`, "by: want position or content"},
		{`{"at":"1-1","by":"content"}`, "at least one range"},
		{`{"at":"1","by":"content","ranges":[{"count":0,` + digest + `}]}`, "invalid cursor"},
		{`{"at":null,"by":"content","ranges":[]}`, "at is missing"},
		{`{"at":1,"by":"content","ranges":[]}`, "at: got a number, want a string"},
		{`{"at":"1-1","by":"size","ranges":[{"count":0,` + digest + `}]}`, "by: want position or content"},
		{`{"at":"1-1","at":"1-1"}`, `duplicate member "at"`},
		{`{"at":"1-1","details":true}`, `unknown member "details"; known members: at, by, ranges`},
		{`{"At":"1-1"}`, `unknown member "At"; did you mean "at"?`},
		{head + `]}`, "at least one range"},
		{`{"at":"1-1","by":"content","ranges":null}`, "ranges: got null, want an array"},
		{head + `7]}`, "range 1: JSON value: got a number, want an object"},
		{head + `null]}`, "range 1: count is missing"},
		{one(`"count":0,`+digest) + `{}`, "after top-level value"},
		{one(`"count":0,`+digest) + `]`, "after top-level value"},
		{one(``), "range 1: count is missing"},
		{one(`"count":0`), "range 1: digest is missing"},
		{one(`"count":0,"digest":null`), "range 1: digest is missing"},
		{one(`"count":0,"digest":"00"`), "range 1: invalid digest \"00\""},
		{one(`"count":0,"digest":"0000000000000000000000000000000A"`), "lower-case"},
		{one(`"count":-1,` + digest), "range 1: count: got -1, want a whole number"},
		{one(`"count":1.0,` + digest), "range 1: count: got 1.0, want a whole number"},
		{one(`"count":9007199254740992,` + digest), "range 1: count: got 9007199254740992, want at most"},
		{one(`"count":"1",` + digest), "range 1: count: got a string, want a number"},
		{one(`"count":1,"count":1,` + digest), `range 1: duplicate member "count"`},
		{one(`"form":"a","count":1,` + digest), `range 1: unknown member "form"; did you mean "from"?`},
		{one(`"size":1,` + digest), `range 1: unknown member "size"; known members: from, to, count, digest`},
		{one(`"from":"","count":1,` + digest), "range 1: from is empty"},
		{one(`"to":"","count":1,` + digest), "range 1: to is empty"},
		{one(`"to":5,"count":1,` + digest), "range 1: to: got a number, want a string"},
		{one(`"from":"a","to":"a","count":1,` + digest), "range 1: from must be before to"},
		{one(`"from":"b","to":"a","count":1,` + digest), "range 1: from must be before to"},
		{one(`"from":"` + strings.Repeat("a", 2050) + `","count":1,` + digest), "range 1: from exceeds"},
		{one("\"from\":\"\xff\",\"count\":1," + digest), "range 1: invalid JSON at offset"},
		{one(`"to":"b","count":1,` + digest + `},{"from":"a","to":"c","count":1,` + digest), "range 2: from is before the end"},
		{one(`"to":"b","count":1,` + digest + `},{"to":"c","count":1,` + digest), "range 2: from is before the end"},
		{one(`"count":1,` + digest + `},{"from":"a","count":1,` + digest), "range 2: from is before the end"},
	} {
		_, err := ReadQuestion(strings.NewReader(test.text))
		if !errors.Is(err, resourcesync.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.text, err, test.want)
		}
	}

	var many strings.Builder
	many.WriteString(head)
	for i := range MaxRanges {
		fmt.Fprintf(&many, `{"from":"%05d","to":"%05d","count":1,%s},`, i, i+1, digest)
	}
	full := strings.TrimSuffix(many.String(), ",") + "]}"
	if q, err := ReadQuestion(strings.NewReader(full)); err != nil || len(q.Ranges) != MaxRanges {
		t.Errorf("%d ranges: %v", len(q.Ranges), err)
	}
	for _, text := range []string{many.String() + `{"from":"b","count":1,` + digest + "}]}", head + strings.Repeat(" ", MaxQuestion)} {
		if _, err := ReadQuestion(strings.NewReader(text)); !errors.Is(err, resourcesync.ErrTooLarge) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}

func FuzzReadQuestion(f *testing.F) {
	f.Add([]byte(`{"at":"7-1","by":"content","ranges":[{"from":null,"to":"https://example.org/m","count":3,"digest":"ab000000000000000000000000000000"},{"from":"n","count":0,"digest":"ab000000000000000000000000000000"}]}`))
	f.Add([]byte(`{"ranges":[{"count":0,"digest":"ab000000000000000000000000000000","to":"\u0000\ud83d\ude00"}],"by":"position","at":"0-0"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		q, err := ReadQuestion(bytes.NewReader(text))
		if err != nil {
			if _, ok := errors.AsType[*resourcesync.Error](err); !ok {
				t.Fatalf("got %v, want a *resourcesync.Error", err)
			}
			return
		}
		for i, r := range q.Ranges {
			if r.To != "" && r.From >= r.To || i > 0 && (q.Ranges[i-1].To == "" || r.From < q.Ranges[i-1].To) {
				t.Fatalf("ReadQuestion(%q) = ranges that are not ascending and disjoint", text)
			}
		}
		again, err := ReadQuestion(bytes.NewReader(q.AppendJSON(nil)))
		if err != nil || !reflect.DeepEqual(again, q) {
			t.Fatalf("ReadQuestion(%q) = %+v, and after AppendJSON %+v, %v", text, q, again, err)
		}
	})
}

func FuzzReadReply(f *testing.F) {
	f.Add([]byte(`{"set":"a","cursor":"7-1","ranges":[{"from":null,"to":"b","count":1,"resources":[{"loc":"https://example.org/a","change":"updated","position":3,"datetime":"2023-11-14T22:13:20.000000Z","e":"ab000000000000000000000000000000","later":{}}]},{"from":"b","to":null,"count":65,"digest":"ab000000000000000000000000000000"}],"more":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ReadReply(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, resourcesync.ErrInvalid) && !errors.Is(err, resourcesync.ErrTooLarge) {
				t.Fatalf("got %v, want a *resourcesync.Error", err)
			}
			return
		}
		if _, err := ReadReply(bytes.NewReader(r.AppendJSON(nil))); err != nil {
			t.Fatalf("ReadReply after AppendJSON of %q = %v", text, err)
		}
	})
}

// TestReadReplyLimit reads more ranges than the answer to any question has.
func TestReadReplyLimit(t *testing.T) {
	const one = `{"from":null,"to":null,"count":0,"resources":[]}`
	text := func(n int) io.Reader {
		return strings.NewReader(`{"set":"a","cursor":"1-1","ranges":[` + strings.Repeat(one+",", n-1) + one + `]}`)
	}
	if r, err := ReadReply(text(MaxRanges * MaxSplit)); err != nil || len(r.Ranges) != MaxRanges*MaxSplit {
		t.Errorf("ReadReply() = %d ranges, %v", len(r.Ranges), err)
	}
	if _, err := ReadReply(text(MaxRanges*MaxSplit + 1)); !errors.Is(err, resourcesync.ErrTooLarge) {
		t.Errorf("ReadReply() = %v, want %v", err, resourcesync.ErrTooLarge)
	}
}

func TestReadSummary(t *testing.T) {
	const digest = `"00000000000000000000000000000000"`
	for _, text := range []string{
		`7`, `{"count":"1"}`, `{}`,
		`{"cursor":"1","count":0,"weak":0,"position":` + digest + `,"content":` + digest + `}`,
		`{"cursor":"1-1","count":0,"position":` + digest + `,"content":` + digest + `}`,
		`{"cursor":"1-1","count":0,"weak":0,"position":` + digest + `}`,
		`{"cursor":"1-1","count":-1,"weak":0,"position":` + digest + `,"content":` + digest + `}`,
	} {
		if _, err := ReadSummary(strings.NewReader(text)); !errors.Is(err, resourcesync.ErrInvalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := ReadSummary(strings.NewReader(`{"cursor":"1-1","count":0,"weak":0,"later":[],"position":` + digest + `,"content":` + digest + `}`)); err != nil {
		t.Errorf("with a member of a later hub: %v", err)
	}
}
