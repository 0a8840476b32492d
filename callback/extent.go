package callback

import "github.com/rshub/rshub/feed"

// An extent grows over entries until a cut is large enough. One goroutine uses it.
type extent struct {
	filter       *filter
	limit, bytes int // bounds of changes and length

	looked  int         // entries that were looked at
	cursor  feed.Cursor // of the last of them
	begins  int64       // datetime of the first of them
	changes int         // entries that pass
	length  int         // bytes of these as XML
	parts   [][]byte    // the text of these, out of the spans
}

// take takes entries of a part, at most n, and reports whether more may be taken.
func (x *extent) take(p part, n int) bool {
	entries := p.batch.Entries
	begin, end := 0, 0 // of the run of bytes that is not in parts yet
	defer func() {
		if end > begin {
			x.parts = append(x.parts, p.text[begin:end:end])
		}
	}()
	for i := p.first; i < len(entries); i++ {
		if n == 0 {
			return false
		}
		if x.filter.match(&entries[i].Change) {
			_, ends := p.encoded()
			start := 0
			if i > 0 {
				start = ends[i-1]
			}
			length := ends[i] - start
			if x.changes == x.limit || x.changes > 0 && x.length+length > x.bytes {
				return false
			}
			if start != end {
				if end > begin {
					x.parts = append(x.parts, p.text[begin:end:end])
				}
				begin = start
			}
			end = ends[i]
			x.changes, x.length = x.changes+1, x.length+length
		}
		if x.looked == 0 {
			x.begins = entries[i].Micros
		}
		x.looked, x.cursor, n = x.looked+1, entries[i].Cursor, n-1
	}
	return n > 0
}
