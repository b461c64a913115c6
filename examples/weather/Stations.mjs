// Weather stations: one tool reads, the other writes and is answered in plain text.
export const main = {
    namespace: 'weather',
    name: 'Stations',
    description: 'Weather stations: what they measured, and a way to report a reading.',
    version: '4.0.0',
    schemaVersion: '1.0.0',
    schemaHash: '981fd7e4',
    root: 'https://api.weather.example/v1',
    docs: [ 'https://docs.weather.example/stations' ],
    tags: [ 'weather', 'stations' ],
    tools: {
        getStation: {
            method: 'GET',
            path: '/stations/{{stationId}}',
            description: 'A weather station and its last reading',
            parameters: [
                {
                    position: { key: 'stationId', value: '{{USER_PARAM}}', location: 'insert' },
                    z: { primitive: 'string()', options: [ 'min(2)', 'max(8)' ] }
                }
            ],
            output: {
                mimeType: 'application/json',
                schema: {
                    type: 'object',
                    properties: {
                        id: { type: 'string', description: 'Id of the station' },
                        height: { type: 'number', description: 'Metres above the sea' },
                        temperature: { type: 'number', description: 'Celsius', nullable: true }
                    }
                }
            },
            tests: [
                { _description: 'On a hill', stationId: 'be-1' },
                { _description: 'At the sea', stationId: 'li-1' },
                { _description: 'In the north', stationId: 'os-1' }
            ],
            meta: {
                isReadOnly: true,
                isConcurrencySafe: true,
                isDestructive: false,
                searchHint: 'weather station last reading',
                aliases: [],
                alwaysLoad: false
            }
        },
        reportReading: {
            method: 'POST',
            path: '/stations/{{stationId}}/readings',
            description: 'Report what a station measured',
            parameters: [
                {
                    position: { key: 'stationId', value: '{{USER_PARAM}}', location: 'insert' },
                    z: { primitive: 'string()', options: [ 'min(2)', 'max(8)' ] }
                },
                {
                    position: { key: 'temperature', value: '{{USER_PARAM}}', location: 'body' },
                    z: { primitive: 'number()', options: [ 'min(-90)', 'max(60)' ] }
                },
                {
                    position: { key: 'source', value: 'callpact', location: 'body' },
                    z: { primitive: 'string()', options: [] }
                }
            ],
            output: {
                mimeType: 'text/plain',
                schema: { type: 'string', description: 'A line that confirms the reading' }
            },
            tests: [
                { _description: 'A mild day', stationId: 'be-1', temperature: 18.5 },
                { _description: 'Freezing', stationId: 'os-1', temperature: -12 },
                { _description: 'At the sea', stationId: 'li-1', temperature: 21 }
            ],
            meta: {
                isReadOnly: false,
                isConcurrencySafe: true,
                isDestructive: false,
                searchHint: 'report weather reading temperature',
                aliases: [],
                alwaysLoad: false
            }
        }
    }
}
