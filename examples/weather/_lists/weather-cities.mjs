// Cities that tools can name. One of them has no station yet: schemas filter it out.
export const list = {
    meta: {
        name: 'weatherCities',
        version: '1.0.0',
        description: 'Cities with their names in addresses and their stations',
        fields: [
            { key: 'slug', type: 'string', description: 'The name in addresses' },
            { key: 'name', type: 'string', description: 'The name for people' },
            { key: 'station', type: 'string', description: 'Id of its station', optional: true }
        ]
    },
    entries: [
        { slug: 'berlin', name: 'Berlin', station: 'be-1' },
        { slug: 'lisbon', name: 'Lisbon', station: 'li-1' },
        { slug: 'oslo', name: 'Oslo', station: 'os-1' },
        { slug: 'utopia', name: 'Utopia', station: null }
    ]
}
