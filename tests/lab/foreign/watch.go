package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	busy = "busy"
	// copies is how many of each sort of watch there are at once, as several screens of a terminal browser have.
	copies = 4
	// writers write to so many ConfigMaps each, one after the other.
	writers, objects, rounds = 6, 10, 8
)

// seen is what one watch was told of one object, in its order: revisions, and "gone".
type seen struct {
	sync.Mutex
	name string
	told map[string][]string
	err  error
}

func (s *seen) note(name, revision string) {
	s.Lock()
	defer s.Unlock()
	// A list that begins a watch may tell of what a watch told already.
	if told := s.told[name]; len(told) == 0 || told[len(told)-1] != revision {
		s.told[name] = append(told, revision)
	}
}

func (s *seen) failed(err error) {
	s.Lock()
	defer s.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// summary is what a watch story ends with.
type summary struct {
	Kinds   int `json:"kinds"`
	Watches int `json:"watches"`
	Writes  int `json:"writes"`
}

func watchStory(ctx context.Context, config *rest.Config) (any, error) {
	plain, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	space := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: busy}}
	if _, err := plain.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	kinds, err := watchable(plain.Discovery())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all, err := watchAll(ctx, config, kinds)
	if err != nil {
		return nil, err
	}
	written, err := write(ctx, plain)
	if err != nil {
		return nil, err
	}
	writes := 0
	for _, revisions := range written {
		writes += len(revisions)
	}
	err = until(ctx, "every watch to tell of every write", func() (bool, error) {
		for _, watch := range all.ofMaps {
			if err := watch.lacks(written); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	for _, watch := range slices.Concat(all.ofMaps, all.others) {
		if watch.err != nil {
			return nil, fmt.Errorf("%s: %w", watch.name, watch.err)
		}
	}
	return summary{Kinds: len(kinds), Watches: len(all.ofMaps) + len(all.others), Writes: writes}, nil
}

// lacks says what a watch was not told of, or told in another order.
func (s *seen) lacks(written map[string][]string) error {
	s.Lock()
	defer s.Unlock()
	for name, revisions := range written {
		if !slices.Equal(s.told[name], revisions) {
			return fmt.Errorf("%s: %s was told as %v, written as %v", s.name, name, s.told[name], revisions)
		}
	}
	return nil
}

// watchable is every kind that discovery offers to list and watch.
func watchable(client discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	lists, err := discovery.ServerPreferredResources(client)
	if err != nil {
		return nil, err
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists)
	found, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, err
	}
	kinds := make([]schema.GroupVersionResource, 0, len(found))
	for kind := range found {
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// watches are those of ConfigMaps, which must tell of every write, and those of all other kinds, which must not fail.
type watches struct{ ofMaps, others []*seen }

func (w *watches) add(kind schema.GroupVersionResource, sort string) *seen {
	watch := &seen{name: sort + " of " + kind.Resource, told: map[string][]string{}}
	if kind.Group == "" && kind.Resource == "configmaps" {
		w.ofMaps = append(w.ofMaps, watch)
	} else {
		w.others = append(w.others, watch)
	}
	return watch
}

func watchAll(ctx context.Context, config *rest.Config, kinds []schema.GroupVersionResource) (*watches, error) {
	all := &watches{}
	anything, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	names, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var synced []cache.InformerSynced
	ready := make(chan struct{}, copies*len(kinds))
	for range copies {
		whole := dynamicinformer.NewDynamicSharedInformerFactory(anything, 0)
		partial := metadatainformer.NewSharedInformerFactory(names, 0)
		for _, kind := range kinds {
			for sort, informer := range map[string]cache.SharedIndexInformer{
				"objects": whole.ForResource(kind).Informer(), "metadata": partial.ForResource(kind).Informer(),
			} {
				handle, err := follow(informer, all.add(kind, sort))
				if err != nil {
					return nil, err
				}
				synced = append(synced, handle)
			}
			table, err := tables(config, kind)
			if err != nil {
				return nil, err
			}
			go watchTable(ctx, table, kind.Resource, all.add(kind, "tables"), ready)
		}
		whole.Start(ctx.Done())
		partial.Start(ctx.Done())
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), synced...) {
		return nil, fmt.Errorf("not every informer has its list: %w", all.first())
	}
	for range copies * len(kinds) {
		select {
		case <-ready:
		case <-limited.Done():
			return nil, fmt.Errorf("not every table is watched: %w", all.first())
		}
	}
	return all, nil
}

func (w *watches) first() error {
	for _, watch := range slices.Concat(w.ofMaps, w.others) {
		watch.Lock()
		err := watch.err
		watch.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", watch.name, err)
		}
	}
	return fmt.Errorf("without an error")
}

func follow(informer cache.SharedIndexInformer, watch *seen) (cache.InformerSynced, error) {
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { watch.failed(err) }); err != nil {
		return nil, err
	}
	note := func(object any) {
		if found, err := meta.Accessor(object); err == nil && found.GetNamespace() == busy {
			watch.note(found.GetName(), found.GetResourceVersion())
		}
	}
	handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(_, now any) { note(now) },
		DeleteFunc: func(object any) {
			if lost, is := object.(cache.DeletedFinalStateUnknown); is {
				watch.failed(fmt.Errorf("the deletion of %s was missed", lost.Key))
				return
			}
			if found, err := meta.Accessor(object); err == nil && found.GetNamespace() == busy {
				watch.note(found.GetName(), "gone")
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return handle.HasSynced, nil
}

func tables(config *rest.Config, kind schema.GroupVersionResource) (*rest.RESTClient, error) {
	own := rest.CopyConfig(config)
	own.GroupVersion = &schema.GroupVersion{Group: kind.Group, Version: kind.Version}
	own.APIPath = "/apis"
	if kind.Group == "" {
		own.APIPath = "/api"
	}
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(own)
}

// table is a Table as far as a watcher reads it.
type table struct {
	metav1.ListMeta `json:"metadata"`
	Columns         []metav1.TableColumnDefinition `json:"columnDefinitions"`
	Rows            []struct {
		Cells  []any                        `json:"cells"`
		Object metav1.PartialObjectMetadata `json:"object"`
	} `json:"rows"`
}

// watchTable lists and watches as a terminal browser does: rows for the screen, with the metadata of each.
func watchTable(ctx context.Context, client *rest.RESTClient, resource string, watch *seen, ready chan<- struct{}) {
	accept := "application/json;as=Table;v=v1;g=meta.k8s.io"
	body, err := client.Get().Resource(resource).SetHeader("Accept", accept).Param("limit", "500").Do(ctx).Raw()
	if err != nil {
		watch.failed(err)
		return
	}
	listed := table{}
	if err := json.Unmarshal(body, &listed); err != nil || len(listed.Columns) == 0 {
		watch.failed(fmt.Errorf("no table: %w: %.200s", err, body))
		return
	}
	stream, err := client.Get().Resource(resource).SetHeader("Accept", accept).
		Param("watch", "true").Param("resourceVersion", listed.ResourceVersion).Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", "200").Stream(ctx)
	if err != nil {
		watch.failed(err)
		return
	}
	defer stream.Close()
	ready <- struct{}{}
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		event := struct {
			Type   string
			Object table
		}{}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || event.Type == "ERROR" {
			watch.failed(fmt.Errorf("no event: %w: %.200s", err, lines.Bytes()))
			return
		}
		for _, row := range event.Object.Rows {
			if row.Object.Namespace != busy || event.Type == "BOOKMARK" {
				continue
			}
			revision := row.Object.ResourceVersion
			if event.Type == "DELETED" {
				revision = "gone"
			}
			watch.note(row.Object.Name, revision)
		}
	}
	if ctx.Err() == nil {
		watch.failed(fmt.Errorf("the watch ended: %w", lines.Err()))
	}
}

// write makes, changes and deletes objects, and says which revisions each had.
func write(ctx context.Context, client kubernetes.Interface) (map[string][]string, error) {
	var all sync.WaitGroup
	var lock sync.Mutex
	written := map[string][]string{}
	failures := make(chan error, writers)
	for writer := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			for number := range objects {
				name := fmt.Sprintf("writer-%d-%02d", writer, number)
				revisions, err := life(ctx, client, name, number%2 == 0)
				if err != nil {
					failures <- fmt.Errorf("%s: %w", name, err)
					return
				}
				lock.Lock()
				written[name] = revisions
				lock.Unlock()
			}
		}()
	}
	all.Wait()
	close(failures)
	return written, <-failures
}

// life is that of one ConfigMap.
func life(ctx context.Context, client kubernetes.Interface, name string, dies bool) ([]string, error) {
	maps := client.CoreV1().ConfigMaps(busy)
	object := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": strings.Repeat("x", 2000)}}
	object, err := maps.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	revisions := []string{object.ResourceVersion}
	for round := range rounds {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{"round": fmt.Sprint(round)}})
		if err != nil {
			return nil, err
		}
		if object, err = maps.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		revisions = append(revisions, object.ResourceVersion)
		time.Sleep(5 * time.Millisecond)
	}
	if dies {
		revisions = append(revisions, "gone")
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return revisions, err
}
