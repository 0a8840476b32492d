// Command alerts evaluates the alerts of a Prometheus rule file over series that
// it is given, with Prometheus' own engine:
//
//	alerts FILE < SERIES
//	alerts -queries FILE < SERIES
//
// A series is a line of JSON, {"series": `name{label="value"}`, "points": [[MILLISECONDS, VALUE], …]}.
// The answer is JSON: each alert of the file, and whether it fires at the time of
// the last point. With -queries the file is a JSON array of queries, and the answer
// says of each which metrics it names and which series it returns. It is a program, so that the tests that run it do not
// link the engine.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// step is the time between two evaluations.
const step = 30 * time.Second

// An answer says what is of an alert.
type answer struct {
	Alert               string
	Fires               bool
	Metrics             []string // that its expression names
	Labels, Annotations map[string]string
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "alerts:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("alerts", flag.ContinueOnError)
	queries := flags.Bool("queries", false, "the file is a JSON array of queries")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("one argument is needed: the file of rules, or of queries")
	}
	file := flags.Arg(0)
	series, end, err := readSeries(in)
	if err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e7, Timeout: time.Minute})
	defer engine.Close()
	if *queries {
		return answerQueries(engine, file, series, end, out)
	}
	groups, errs := rulefmt.ParseFile(file, false)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	answers := []answer{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			a := answer{Alert: r.Alert, Labels: r.Labels, Annotations: r.Annotations}
			if a.Metrics, err = metrics(r.Expr); err == nil {
				a.Fires, err = fires(engine, series, r.Expr, time.Duration(r.For), end)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.Alert, err)
			}
			answers = append(answers, a)
		}
	}
	return json.NewEncoder(out).Encode(answers)
}

// metrics are the names in an expression.
func metrics(text string) (names []string, err error) {
	expr, err := parser.ParseExpr(text)
	if err != nil {
		return nil, err
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names, nil
}

// fires reports whether an expression has had the same labels, without a break,
// for a time until the end.
func fires(engine *promql.Engine, stored queryable, expr string, since time.Duration, end time.Time) (bool, error) {
	var always map[string]bool
	for at := end.Add(-since); !at.After(end); at = at.Add(step) {
		q, err := engine.NewInstantQuery(context.Background(), stored, nil, expr, at)
		if err != nil {
			return false, err
		}
		v, err := q.Exec(context.Background()).Vector()
		if err != nil {
			return false, err
		}
		now := map[string]bool{}
		for _, s := range v {
			if key := s.Metric.String(); always == nil || always[key] {
				now[key] = true
			}
		}
		q.Close()
		always = now
	}
	return len(always) > 0, nil
}

// readSeries returns the series and the time of the last point.
func readSeries(in io.Reader) (all queryable, end time.Time, err error) {
	d := json.NewDecoder(in)
	for {
		var line struct {
			Series string
			Points [][2]float64
		}
		if err := d.Decode(&line); err == io.EOF {
			return all, end, nil
		} else if err != nil {
			return nil, end, fmt.Errorf("read series: %w", err)
		}
		of, err := parser.ParseMetric(line.Series)
		if err != nil {
			return nil, end, fmt.Errorf("series %s: %w", line.Series, err)
		}
		var points []chunks.Sample
		for _, p := range line.Points {
			points = append(points, point{int64(p[0]), p[1]})
			if at := time.UnixMilli(int64(p[0])); at.After(end) {
				end = at
			}
		}
		all = append(all, storage.NewListSeries(of, points))
	}
}

// A point is a chunks.Sample.
type point struct {
	t int64
	v float64
}

func (p point) T() int64                      { return p.t }
func (p point) F() float64                    { return p.v }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// A queryable is series as the engine reads them.
type queryable []storage.Series

func (q queryable) Querier(int64, int64) (storage.Querier, error) { return q, nil }

func (q queryable) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := slices.DeleteFunc(slices.Clone(q), func(s storage.Series) bool {
		return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) })
	})
	return &seriesSet{found: found, at: -1}
}

func (q queryable) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("not needed")
}

func (q queryable) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("not needed")
}

func (q queryable) Close() error { return nil }

type seriesSet struct {
	found []storage.Series
	at    int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.found) }
func (s *seriesSet) At() storage.Series                { return s.found[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
